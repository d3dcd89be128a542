"""Addresses: what is read, what is refused with which words, and what is never shown."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from pydantic import ValidationError

from amqpjobs import addresses
from amqpjobs.addresses import AddressError
from amqpjobs.settings import Settings

ODD = "p@:/?#%é"


@pytest.mark.parametrize(
    ("path", "vhost"),
    [
        ("", "/"),
        ("/", "/"),
        ("//", "/"),
        ("/%2F", "/"),
        ("/%2f", "/"),
        ("/a%2Fb", "a/b"),
        ("/jobs", "jobs"),
        ("/%C3%A9", "é"),
        ("/?vhost=", ""),
        ("?vhost=", ""),
        ("/jobs?heartbeat=3", "jobs"),
    ],
)
def test_virtual_hosts(path: str, vhost: str) -> None:
    [read] = addresses.brokers(f"amqp://u:p@h:1{path}")
    assert read.vhost == vhost
    [again] = addresses.brokers(read.shown)
    assert again.vhost == vhost


@pytest.mark.parametrize(
    ("url", "host", "port", "user", "password"),
    [
        ("amqp://", "127.0.0.1", 5672, "guest", "guest"),
        ("amqps://", "127.0.0.1", 5671, "guest", "guest"),
        ("amqp://h", "h", 5672, "guest", "guest"),
        ("AMQP://u:p@h", "h", 5672, "u", "p"),
        ("amqp://[::1]:33/x", "::1", 33, "guest", "guest"),
        ("amqp://u:@h:5/x", "h", 5, "u", ""),
        ("amqp://u%40v:a:b@h", "h", 5672, "u@v", "a:b"),
        (f"amqp://u:{quote(ODD, safe='')}@h/", "h", 5672, "u", ODD),
    ],
)
def test_parts(url: str, host: str, port: int, user: str, password: str) -> None:
    [read] = addresses.brokers(url)
    assert (read.host, read.port, read.user, read.password) == (host, port, user, password)
    assert password == "guest" or len(password) < 3 or password not in repr(read) + read.shown


@pytest.mark.parametrize(
    "text",
    [
        "amqp://u:p,q@h1/v amqps://h2",
        "amqp://u:p,q@h1/v,amqps://h2",
        " amqp://u:p,q@h1/v , amqps://h2 ,",
        "amqp://u:p,q@h1/v\namqps://h2\n",
    ],
)
def test_several(text: str) -> None:
    read = addresses.brokers(text)
    assert [(each.host, each.secure, each.vhost) for each in read] == [("h1", False, "v"), ("h2", True, "/")]
    assert read[0].password == "p,q"
    assert addresses.redact(text) == "amqp://h1:5672/v, amqps://h2:5671/"


@pytest.mark.parametrize("character", [*"@/?#%é \\[", "%zz"])
def test_a_raw_character_is_named_with_what_to_write(character: str) -> None:
    url = f"amqp://user:s3cr{character}et@rabbit.example:5672/jobs"
    with pytest.raises(AddressError) as caught:
        addresses.brokers(url)
    said = str(caught.value)
    assert repr(character[0]) in said
    assert f"write {quote(character[0], safe='')}" in said
    assert "s3cr" not in said
    assert "et@" not in said
    assert addresses.redact(url) == addresses.UNREADABLE


def test_all_of_them_at_once() -> None:
    with pytest.raises(AddressError) as caught:
        addresses.brokers(f"amqp://guest:{ODD}@127.0.0.1:5672/")
    for code in ("%40", "%2F", "%3F", "%23", "%25", "%C3%A9"):
        assert code in str(caught.value)
    assert ODD not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "http://u:s3cret@h/",
        "amqp:/u:s3cret@h",
        "amqp://u:s3cret",
        "amqp://u:s3cret/jobs",
        "amqp://u:1@h:s3cret/",
        "amqp://u:1@h:99999/",
        "amqp://u:1@h/s3cret/more",
        "amqp://u:1@h/s3cret#x",
        "amqp://u:1@h/%s3cret",
        "amqp://u:1@h\ts3cret/x",
        "amqp://[::1",
    ],
)
def test_what_cannot_be_read_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(AddressError) as caught:
        addresses.brokers(url)
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in addresses.redact(url)


def test_management_addresses() -> None:
    read = addresses.web(f"https://ann:{quote(ODD, safe='')}@m/rabbit/")
    assert (read.base, read.user, read.password) == ("https://m:15671/rabbit", "ann", ODD)
    assert "ann" not in repr(read)
    with pytest.raises(AddressError, match="management address") as caught:
        addresses.web("http://ann:s3/cret@m")
    assert "s3" not in str(caught.value)


def test_settings_that_are_wrong_show_no_value() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(url="amqp://u:s3cret@h", management_url=["s3cret"], heartbeat="s3cret")  # type: ignore[arg-type]
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(Settings(url="amqp://u:s3cret@h"))
