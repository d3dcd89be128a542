"""@job, the registry, and what may be enqueued. Nothing here needs a broker: it is refused before anything is sent."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import subprocess
import sys
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqpjobs import payload
from amqpjobs.client import Client, moment
from amqpjobs.jobs import JobFunction, Registry
from amqpjobs.model import names, reading, text
from amqpjobs.model.messages import Job
from amqpjobs.settings import Settings


@pytest.fixture
def jobs() -> Registry:
    return Registry()


async def document(job: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    options = kwargs.pop("options", {})
    return Client(Settings()).document(job, args, kwargs, options)


def test_a_function_is_registered_under_its_own_name_and_still_runs(jobs: Registry) -> None:
    @jobs.job
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    assert jobs.get("add") is add
    assert add(1, 2) == 3
    assert add.__doc__ == "Adds."
    assert not add.is_async


async def test_an_async_function_is_registered_under_another_name(jobs: Registry) -> None:
    @jobs.job(name="SendEmailJob", queue="mail", retry=3)
    async def send(address: str) -> str:
        return address

    assert jobs.get("send") is None
    assert jobs.get("SendEmailJob") is send
    assert send.is_async
    assert await send("a@b") == "a@b"
    assert send.defaults == {"queue": "mail", "retry": 3}


def test_two_functions_under_one_name_are_an_error_that_names_both(jobs: Registry) -> None:
    def first() -> None: ...
    def second() -> None: ...

    jobs.job(name="X")(first)
    with pytest.raises(ValueError, match=r"'X'.*first.*second.*name="):
        jobs.job(name="X")(second)
    assert jobs.get("X") is not None
    assert jobs.get("X").function is first  # type: ignore[union-attr]


def test_the_same_function_may_come_again_as_when_its_module_is_reloaded(jobs: Registry) -> None:
    source = "def f():\n    return 1\n"
    for _ in range(2):
        space: dict[str, Any] = {"__name__": "m"}
        exec(compile(source, "m.py", "exec"), space)
        jobs.job(space["f"])
    assert list(jobs) == ["f"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": "no spaces"}, "cannot be a queue's name"),
        ({"queue": ""}, "cannot be a queue's name"),
        ({"queue": "x" * 201}, "1 to 200"),
        ({"retry": -1}, "0 to 1000"),
        ({"retry": 1001}, "0 to 1000"),
        ({"retry": "5"}, "whole number"),
        ({"priority": 11}, "0 to 10"),
        ({"priority": True}, "whole number"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": float("nan")}, "not a delay"),
        ({"tags": "urgent"}, "list of strings"),
        ({"tags": [1]}, "list of strings"),
        ({"retry_delays": []}, "at least one"),
        ({"dead": 0}, "True or False"),
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"meta": {"at": datetime.datetime.now()}}, "meta['at'] is a datetime"),
        ({"jid": ""}, "jid"),
    ],
)
async def test_wrong_options_are_refused_and_the_error_says_what_is_allowed(options: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        await document("X", options=options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (datetime.datetime.now(), "isoformat"),
        (uuid.uuid4(), "str(value)"),
        (decimal.Decimal("1.1"), "str(value)"),
        (b"bytes", "base64"),
        ({1, 2}, "list"),
        (object(), "object"),
        pytest.param(10**5000, "thousands of digits", id="huge"),
        ({1: "a"}, "keys of JSON objects are strings"),
    ],
)
async def test_what_json_cannot_carry_is_refused_by_name(value: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        await document("SendEmailJob", "fine", {"deep": [value]})
    assert "SendEmailJob: argument 1['deep'][0]" in str(caught.value)
    assert says in str(caught.value)
    assert "nothing was sent" in str(caught.value)


def _shapes() -> list[Any]:
    def plain(a: int, b: int) -> None: ...
    def defaults(a: int, b: int = 1, *, c: int = 2) -> None: ...
    def placed(a: int, b: int = 1, /) -> None: ...
    def must_be_named(a: int, *, c: int) -> None: ...
    def many(a: int, *b: int) -> None: ...
    def anything(*a: int, **b: int) -> None: ...
    def named(a: int, **b: int) -> None: ...
    def nothing() -> None: ...

    return [plain, defaults, placed, must_be_named, many, anything, named, nothing]


@pytest.mark.parametrize("function", _shapes(), ids=lambda function: function.__name__)
def test_arguments_are_taken_where_a_call_would_take_them(function: Any, jobs: Registry) -> None:
    registered: JobFunction[Any, None] = jobs.job(function)
    calls: list[Any] = [((0,) * count, {}) for count in range(4)]
    calls += [((), dict.fromkeys(names, 0)) for size in range(4) for names in itertools.combinations("abcd", size)]
    for args, kwargs in calls:
        try:
            function(*args, **kwargs)
        except TypeError as error:
            with pytest.raises(TypeError, match=f"{function.__name__}: .*nothing was sent"):
                registered.arguments(args, kwargs)
            assert "argument" in str(error)
        else:
            assert registered.arguments(args, kwargs) == (kwargs or list(args))


async def test_a_circle_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(TypeError, match="nested deeper"):
        await document("X", circle)


def test_the_deepest_arguments_that_are_taken_can_be_read() -> None:
    value: Any = 1
    for _ in range(payload.MAX_DEPTH):
        value = [value]
    job = payload.document("X", [value], {}, jid="j", now=1.0)
    assert isinstance(reading.read_job(payload.encode(job), queue="default", jid="j"), Job)
    with pytest.raises(TypeError, match="nested deeper"):
        payload.document("X", [[value]], {}, jid="j", now=1.0)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(args=st.lists(_JSON, max_size=4), tags=st.lists(st.text(min_size=1), max_size=3))
def test_what_is_sent_is_what_the_worker_reads(args: list[Any], tags: list[str]) -> None:
    sent = payload.document("X", args, {"tags": tags, "priority": 3, "retry": False}, jid="j", now=7.5)
    read = reading.read_job(payload.encode(sent), queue="elsewhere", jid="other")
    assert isinstance(read, Job)
    assert (read.args, read.priority, read.retry) == (args, 3, 0)
    assert read.tags == [text.safe(tag) for tag in tags]
    assert (read.jid, read.queue, read.enqueued_at, read.created_at) == ("j", names.DEFAULT_QUEUE, 7.5, 7.5)


async def test_arguments_are_bound_to_the_function_as_a_call_would(jobs: Registry) -> None:
    @jobs.job
    def send(address: str, subject: str = "", *, urgent: bool = False) -> None: ...

    assert (await document(send, "a", "b"))["args"] == ["a", "b"]
    assert (await document(send, address="a"))["args"] == {"address": "a"}
    assert (await document(send, "a", urgent=True))["args"] == {"address": "a", "urgent": True}
    with pytest.raises(TypeError, match="send: missing a required argument: 'address'; nothing was sent"):
        await document(send)
    with pytest.raises(TypeError, match="unexpected keyword"):
        await document(send, "a", colour=1)


async def test_a_name_takes_positional_or_keyword_arguments_not_both() -> None:
    assert (await document("X", 1, [2]))["args"] == [1, [2]]
    assert (await document("X", a=1))["args"] == {"a": 1}
    assert (await document("X"))["args"] == []
    with pytest.raises(TypeError, match="not both"):
        await document("X", 1, a=1)


async def test_options_of_the_call_go_before_those_of_the_function(jobs: Registry) -> None:
    function = jobs.job(name="X", queue="slow", retry=2, tags=["a"])(lambda: None)
    assert isinstance(function, JobFunction)
    sent = await document(function, options={"retry": 0, "jid": "mine"})
    assert (sent["queue"], sent["retry"], sent["tags"], sent["jid"]) == ("slow", 0, ["a"], "mine")


def test_delay_and_at_exclude_each_other(jobs: Registry) -> None:
    function = jobs.job(name="X")(lambda: None)
    with pytest.raises(TypeError, match="not both"):
        function.options(delay=1, at=2.0)


def test_moments() -> None:
    zoned = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
    assert moment(zoned) == zoned.timestamp() == 1893456000
    naive = datetime.datetime(2030, 1, 1)
    assert moment(naive) == naive.timestamp()
    assert moment(1893456000_000) == 1893456000
    for wrong in (True, "soon", None):
        with pytest.raises(TypeError):
            moment(wrong)  # type: ignore[arg-type]
    for infinite in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="no time"):
            moment(infinite)


def test_a_module_of_jobs_loads_no_broker_driver() -> None:
    code = (
        "import sys, json\nfrom amqpjobs import job, Retry, Fail, Snooze, current\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)
    assert "orjson" in loaded
    assert not {"aiormq", "aio_pika", "fastapi", "pydantic"} & set(loaded)


def test_every_exported_name_exists() -> None:
    import amqpjobs

    for name in amqpjobs.__all__:
        assert getattr(amqpjobs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        amqpjobs.nonsense  # noqa: B018


def test_digits_of_any_length_survive() -> None:
    job = payload.document("X", [2**70, -(10**40)], {}, jid="j", now=1.0)
    assert text.parse(payload.encode(job))["args"] == [2**70, -(10**40)]
