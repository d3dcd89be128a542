"""Who may see the dashboard and act: tokens, logins, proxies; below a path; and what no other site can do."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect
from pydantic import SecretStr
from starlette.datastructures import Headers

from amqpjobs.clock import SystemClock
from amqpjobs.settings import Settings
from amqpjobs.web.access import COOKIE, LIFE, Access, Visitor
from tests.web import entries
from tests.web.conftest import Dashboard, Publish, serving
from tests.web.test_api import ShiftedClock

Eventually = Callable[..., Awaitable[Any]]
TOKEN, VIEW = "correct horse battery staple", "only-to-look-0123456789"
HTML = {"Accept": "text/html"}


def guarded(settings: Settings, **more: Any) -> Settings:
    tokens = {"web_token": SecretStr(TOKEN), "web_view_token": SecretStr(VIEW)}
    return settings.model_copy(update=tokens | more)


async def log_in(served: Dashboard, token: str = TOKEN, **more: str) -> httpx.Response:
    return await served.client.post("/login", data={"token": token, "name": "Ann Ü", **more})


def csrf_of(page: str) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found, "no form of that page is sealed"
    return found[1]


async def filled(served: Dashboard, publish: Publish, eventually: Eventually, **headers: str) -> list[str]:
    made = [entries.dead() for _ in range(3)]
    await publish("dead_jobs", made)

    async def there() -> bool:
        found = await served.get("/api/dead-jobs", headers={"Authorization": f"Bearer {VIEW}", **headers})
        return bool(found.headers.get("X-Total-Count") == "3")

    await eventually(there)
    return [each["jid"] for each in made]


async def test_a_person_logs_in_and_every_form_carries_a_token(
    settings: Settings, publish: Publish, eventually: Eventually
) -> None:
    async with serving(guarded(settings)) as served:
        first, second, third = await filled(served, publish, eventually)
        asked = await served.get("/dead-jobs?class=X", headers=HTML)
        assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=%2Fdead-jobs%3Fclass%3DX")
        assert (await log_in(served, "wrong")).status_code == 401
        assert (await log_in(served, VIEW + "x")).status_code == 401
        done = await log_in(served, next="/dead-jobs?class=X")
        assert (done.status_code, done.headers["location"]) == (303, "/dead-jobs?class=X")
        cookie = done.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert TOKEN not in done.headers["set-cookie"]

        csrf = csrf_of((await served.get("/dead-jobs", headers=HTML)).text)
        form = {"action": "delete", "jid": first}
        for wrong in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
            assert (await served.client.post("/dead-jobs", data=form | wrong)).status_code == 403
        assert (await served.client.delete(f"/api/dead-jobs/{second}")).status_code == 403
        assert (await served.client.post("/dead-jobs", data=form | {"csrf": csrf})).status_code == 303
        sealed = {"X-CSRF-Token": csrf}
        assert (await served.client.delete(f"/api/dead-jobs/{second}", headers=sealed)).status_code == 204
        assert [each["jid"] for each in (await served.get("/api/dead-jobs")).json()] == [third]
        assert {each["by"] for each in (await served.get("/api/audit")).json()} == {"Ann Ü"}

        assert (await served.client.post("/logout", data={"csrf": csrf})).status_code == 303
        assert (await served.get("/api/dead-jobs")).status_code == 401


async def test_who_may_only_look_has_no_buttons_and_no_way_around(
    settings: Settings, publish: Publish, eventually: Eventually
) -> None:
    async with serving(guarded(settings)) as served:
        jid, *_ = await filled(served, publish, eventually)
        bearer = {"Authorization": f"Bearer {VIEW}"}
        for method, path in (
            ("DELETE", f"/api/dead-jobs/{jid}"), ("POST", "/api/dead-jobs/actions"), ("POST", "/recurring"),
        ):  # fmt: skip
            assert (await served.client.request(method, path, headers=bearer, json={})).status_code == 403
        assert (await served.client.post("/health/live", headers=bearer)).status_code == 405, "nobody may, nor need to"
        await log_in(served, VIEW)
        page = (await served.get("/dead-jobs", headers=HTML)).text
        assert jid in page
        assert "<button name" not in page
        sealed = {"action": "delete", "jid": jid, "csrf": csrf_of(page)}
        assert (await served.client.post("/dead-jobs", data=sealed)).status_code == 403
        assert "looks only" in page


@pytest.mark.parametrize("there", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:0", "x"])
async def test_a_login_leads_nowhere_else(settings: Settings, there: str) -> None:
    async with serving(guarded(settings)) as served:
        assert (await log_in(served, next=there)).headers["location"] == "/job-queues"


def test_a_cookie_is_of_one_token_and_ends() -> None:
    clock = ShiftedClock(0)
    access = Access(clock, {"operator": TOKEN, "viewer": VIEW})

    def shown(value: str, of: Access = access) -> Visitor | None:
        return of.visitor(Headers({"Cookie": f"other=1; {COOKIE}={value}"}), "127.0.0.1")

    value = access.login("viewer", "ben")
    assert shown(value) == Visitor("ben", "viewer", value)
    assert shown(value.replace("viewer", "operator", 1)) is None
    assert shown(value[:-1] + ("0" if value[-1] != "0" else "1")) is None
    until = value.split(".")[1]
    assert shown(value.replace(until, str(int(until) + 9), 1)) is None
    assert shown(value, Access(clock, {"operator": TOKEN, "viewer": "another token"})) is None
    for odd in ("", ".", "...", "operator.1.x.y", "viewer", "\x00", "operator.x.x.é"):
        assert shown(odd) is None
    clock.ahead = LIFE + 1
    assert shown(value) is None


def test_a_proxys_word_counts_only_from_the_proxy() -> None:
    access = Access(SystemClock(), {}, "X-Forwarded-User", (ipaddress.ip_network("10.1.0.0/16"),))
    headers = Headers({"X-Forwarded-User": "ann"})
    assert access.visitor(headers, "10.1.2.3") == Visitor("ann")
    for peer in ("10.2.0.1", "127.0.0.1", "::1", None, "unix"):
        assert access.visitor(headers, peer) is None
    for empty in ({}, {"X-Forwarded-User": " "}, {"X-Forwarded-For": "10.1.2.3"}):
        assert access.visitor(Headers(empty), "10.1.2.3") is None


async def test_behind_a_proxy_with_tls_and_another_host(
    settings: Settings, publish: Publish, eventually: Eventually
) -> None:
    """UI-04: the proxy logs people in and renames the host; a real click works, the two forged ones do not."""
    behind = settings.model_copy(update={"web_user_header": "X-Forwarded-User", "web_view_token": SecretStr(VIEW)})
    async with serving(behind) as served:
        first, second, _ = await filled(served, publish, eventually)
        proxy = {
            "Host": "jobs.example.com", "X-Forwarded-Host": "jobs.example.com", "X-Forwarded-Proto": "https",
            "X-Forwarded-User": "ann",
        }  # fmt: skip
        assert (await served.get("/dead-jobs", headers=HTML)).status_code == 303
        form = {"action": "delete", "jid": first}
        forged = proxy | {"Origin": "https://evil.example", "Content-Type": "text/plain"}
        body = b'{"action": "delete", "all": true}'
        assert (await served.client.post("/api/dead-jobs/actions", content=body, headers=forged)).status_code == 403
        assert (await served.client.post("/dead-jobs", data=form)).status_code == 401
        internal = proxy | {"Host": "web-1.internal:8484", "Origin": "https://jobs.example.com"}
        for click, jid in ((internal, first), (proxy | {"Sec-Fetch-Site": "same-origin"}, second)):
            sent = await served.client.post("/dead-jobs", data={"action": "delete", "jid": jid}, headers=click)
            assert sent.status_code == 303
        assert {each["by"] for each in (await served.get("/api/audit", headers=proxy)).json()} == {"ann"}


async def test_over_tls_the_cookie_goes_over_nothing_else(settings: Settings) -> None:
    async with serving(guarded(settings, web_root_path="/jobs")) as served:
        headers = {"X-Forwarded-Proto": "https"}
        done = await served.client.post("/login", data={"token": TOKEN, "name": ""}, headers=headers)
        cookie = done.headers["set-cookie"]
        assert "Secure" in cookie
        assert "Path=/jobs" in cookie


@pytest.mark.parametrize("stripping", [False, True])
async def test_below_a_path_everything_is_found(
    settings: Settings, publish: Publish, stripping: bool, page: Page
) -> None:
    """UI-03: with and without a slash at the end, whether or not the proxy takes the path off."""
    async with serving(settings.model_copy(update={"web_root_path": "/jobs"})) as served:
        base = "" if stripping else "/jobs"
        for path in ("/", *(() if stripping else ("",))):
            home = await served.get(base + path)
            assert (home.status_code, home.headers["location"]) == (302, "/jobs/job-queues")
        await publish("retries", entries.retry())
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(f"{served.address}{base}/job-queues")
        await expect(page.locator("#pulse")).to_have_text("live")
        await expect(page.locator("#retries")).to_have_text("1")
        assert all(url.removeprefix(served.address).startswith(("/jobs/", f"{base}/job-queues")) for url in asked)
        await page.goto(f"{served.address}{base}/retries")
        await page.get_by_role("button", name="Delete: ").first.click()
        await expect(page.locator("#told")).to_contain_text("Deleted 1 job.")
        assert page.url.startswith(f"{served.address}/jobs/retries")
        for name in ("Scheduled", "Dead", "Recurring", "Audit", "Job queues"):
            await page.get_by_role("link", name=name, exact=True).click()
            assert f"{served.address}/jobs/" in page.url
            assert await page.locator("h1").count() == 1


async def test_a_person_logs_in_with_the_keyboard(settings: Settings, page: Page) -> None:
    async with serving(guarded(settings)) as served:
        await page.goto(f"{served.address}/retries")
        await expect(page).to_have_url(f"{served.address}/login?next=%2Fretries")
        await page.keyboard.type("wrong")
        await page.keyboard.press("Enter")
        await expect(page.locator("#wrong")).to_have_text("That is not the token.")
        await page.keyboard.type(TOKEN)
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(f"{served.address}/retries")
        await page.get_by_role("button", name="Log out").click()
        await page.goto(f"{served.address}/retries")
        await expect(page).to_have_url(f"{served.address}/login?next=%2Fretries")


async def test_no_token_is_written_anywhere(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with serving(guarded(settings)) as served:
        texts = [(await log_in(served, "wr0ng-" + TOKEN)).text, (await log_in(served)).text]
        for path in ("/job-queues", "/login", "/api/job-queues", "/api/processes", "/openapi.json", "/audit"):
            texts.append((await served.get(path, headers={"Authorization": f"Bearer {TOKEN}"})).text)
    assert not any(TOKEN in text or VIEW in text for text in [*texts, caplog.text, repr(guarded(settings))])
