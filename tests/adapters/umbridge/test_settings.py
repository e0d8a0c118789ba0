"""Settings and servers that do not fit, and what decides the outputs."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.umbridge_servers import GOOD, OUTPUTS, VALUES, context, raw_server, sends, times_model
from invgp.adapters import AdapterError, Status


@pytest.mark.parametrize(
    ("reported", "sentence"),
    [
        (
            {"/InputSizes": {"inputSizes": [3]}},
            "takes blocks of sizes [3] for the model 'times', but inputs must be as many blocks of the same sizes and "
            "are depth (2), velocity (1)",
        ),
        (
            {"/OutputSizes": {"outputSizes": [2, 2]}},
            "gives blocks of sizes [2, 2] for the model 'times', but outputs must be as many blocks of the same sizes "
            "and are time (2), total (1)",
        ),
        (
            {"/InputSizes": {"inputSizes": 3}},
            "takes blocks of sizes 3.0 for the model 'times', but inputs must be as many blocks of the same sizes and "
            "are depth (2), velocity (1)",
        ),
        (
            {"/Info": {"protocolVersion": 1.0, "models": ["t\ud800imes"]}},
            "offers no model 'times'; did you mean 't?imes'?",
        ),
        ({"/Info": {"protocolVersion": 1.0, "models": ["tims"]}}, "offers no model 'times'; did you mean 'tims'?"),
        ({"/Info": {"protocolVersion": 2.0, "models": []}}, "must speak UM-Bridge 1.0, but speaks 2.0"),
        ({"/Info": {"protocolVersion": True, "models": []}}, "must speak UM-Bridge 1.0, but speaks True"),
        (
            {"/OutputSizes": {"outputSizes": [2, True]}},
            "gives blocks of sizes [2, True] for the model 'times', but outputs must be as many blocks of the same "
            "sizes and are time (2), total (1)",
        ),
        ({"/Info": ["times"]}, 'does not speak UM-Bridge: /Info gave ["times"]'),
        ({"/ModelInfo": {"support": {}}}, "does not evaluate the model 'times'"),
    ],
)
def test_that_a_server_that_does_not_fit_is_reported(reported: dict[str, Any], sentence: str) -> None:
    with raw_server(sends(GOOD), reported) as server:
        outcome = times_model(server.url).evaluate(VALUES, context(3))
    assert set(outcome.status) == {Status.NOT_STARTED}
    assert outcome.messages == tuple(f"run site-{i}: server {server.url} {sentence}" for i in range(3))
    assert server.asked == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"urls": ()}, "urls: must name at least one server, but is empty"),
        ({"urls": ("http://a", "http://a")}, "urls: must differ; connections is the number of simultaneous requests"),
        ({"urls": ("ftp://a",)}, r"urls\[0\]: must be like 'http://localhost:4242', but 'ftp://a' is no address"),
        ({"urls": ("http://a:port",)}, r"urls\[0\]: .* is no address"),
        ({"urls": ("http://me:secret@a",)}, r"urls\[0\]: .* holds more than scheme, host, port and path"),
        ({"urls": ("http://a/\r\nX: y",)}, r"urls\[0\]: .* holds more than scheme, host, port and path"),
        ({"model": ""}, "model: must be the name of a model"),
        ({"timeout": 0.0}, "timeout: must be a positive number of seconds"),
        ({"timeout": float("inf")}, "timeout: must be a positive number of seconds"),
        ({"retries": -1}, "retries: must be at least 0"),
        ({"connections": 0}, "connections: must be at least 1"),
        ({"config": {"a": {1}}}, "config: must be what JSON can hold"),
        ({"config": {"a": float("nan")}}, "config: must be what JSON can hold"),
        ({"inputs": ()}, "inputs: must name at least one quantity"),
    ],
)
def test_that_settings_that_cannot_work_are_refused(settings: dict[str, Any], sentence: str) -> None:
    urls = settings.pop("urls", ("http://localhost",))
    with pytest.raises(AdapterError, match=sentence):
        times_model(*urls, **settings)


def test_that_the_digest_knows_the_version_and_the_config_but_not_the_address() -> None:
    one = times_model("http://a", config={"level": 1, "grid": 2})
    assert one.digest == times_model("http://b", "http://c", config={"grid": 2, "level": 1}, retries=0).digest
    others = [{"version": "2"}, {"config": {"level": 2}}, {"model": "t"}, {"inputs": OUTPUTS}]
    assert len({one.digest, *(times_model("http://a", **other).digest for other in others)}) == 5


def test_that_a_task_keeps_all_connections_busy() -> None:
    assert times_model("http://a").rows_per_task == 32
    assert times_model("http://a", "http://b", connections=4).rows_per_task == 256
