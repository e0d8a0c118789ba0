from __future__ import annotations

import logging
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

from invgp.adapters import AdapterError, CallableModel, Evaluations, Quantity, RunContext, Status, split_jacobian
from invgp.adapters.protocol import cost_of_run
from invgp.adapters.testing import check_forward_model

SPEED = Quantity("speed", "m s-1")
DEPTH = Quantity("depth", "m", (1, 2))
TIME = Quantity("time", "s", ("a", "b"))
GRAVITY = Quantity("gravity", "mGal")
VALUES = np.array([[1.0, 10.0, 20.0], [2.0, 30.0, 40.0], [4.0, 50.0, 60.0]])


def travel_time(speed: Any, depth: Any) -> Any:
    return depth / np.asarray(speed)[..., None]


def fussy(speed: Any, depth: Any) -> Any:
    if np.any(np.asarray(speed) == 2.0):
        raise RuntimeError("no convergence")
    return travel_time(speed, depth)


def context(count: int, directory: Path = Path("unused")) -> RunContext:
    return RunContext([f"r{i}" for i in range(count)], directory)


def model(function: Callable[..., Any] | str = travel_time, **settings: Any) -> CallableModel:
    return CallableModel(function, **{"inputs": (SPEED, DEPTH), "outputs": (TIME,), **settings})


def run(function: Callable[..., Any], values: Any = VALUES, **settings: Any) -> Evaluations:
    return model(function, **settings).evaluate(np.asarray(values, dtype=float), context(len(values)))


@pytest.mark.parametrize("vectorised", [True, False])
def test_that_a_function_conforms(vectorised: bool, tmp_path: Path) -> None:
    check_forward_model(model(vectorised=vectorised), VALUES, tmp_path)
    check_forward_model(model(fussy, vectorised=vectorised), VALUES, tmp_path)
    check_forward_model(model("test_user_module:f", search_path=_user_module(tmp_path)), VALUES, tmp_path)


def _user_module(folder: Path, factor: str = "1", name: str = "test_user_module") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(
        "import numpy as np\nFACTOR = " + factor + "\nconstant = 3\n"
        "def f(speed, depth):\n    return FACTOR * depth / np.asarray(speed)[..., None]\n"
    )
    return folder


def test_that_inputs_come_in_the_documented_shapes() -> None:
    seen: list[Any] = []

    def spy(speed: Any, depth: Any) -> Any:
        seen.append((type(speed), np.shape(speed), np.shape(depth)))
        return depth

    run(spy)
    run(spy, VALUES[:1])
    run(spy, vectorised=False)
    assert seen == [(np.ndarray, (3,), (3, 2)), (np.ndarray, (1,), (1, 2))] + [(float, (), (2,))] * 3


@pytest.mark.parametrize(
    ("result", "outputs"),
    [
        (lambda speed, depth: {"gravity": speed, "time": depth}, (TIME, GRAVITY)),
        (lambda speed, depth: (depth, speed), (TIME, GRAVITY)),
        (lambda speed, depth: [depth, speed[:, None]], (TIME, GRAVITY)),
    ],
)
def test_that_several_outputs_come_by_name_or_in_order(result: Any, outputs: tuple[Quantity, ...]) -> None:
    got = run(result, outputs=outputs)
    np.testing.assert_array_equal(got.outputs, VALUES[:, [1, 2, 0]])
    assert got.ok.all()


def test_that_a_single_number_comes_as_a_scalar_or_a_column() -> None:
    for function, vectorised in (
        (lambda speed, depth: speed, True),
        (lambda speed, depth: speed[:, None], True),
        (lambda speed, depth: speed, False),
        (lambda speed, depth: [speed], False),
    ):
        got = run(function, outputs=(GRAVITY,), vectorised=vectorised)
        np.testing.assert_array_equal(got.outputs, VALUES[:, :1])


@pytest.mark.parametrize(
    ("function", "settings", "sentence"),
    [
        (
            lambda speed, depth: depth.T,
            {},
            r"run r0: output time came with shape \(2, 3\), expected \(3, 2\)",
        ),
        (
            lambda speed, depth: 1.0,
            {"outputs": (GRAVITY,)},
            r"shape \(\), expected \(3, 1\) or \(3,\), for a batch of 3; if .* set `vectorised` to false",
        ),
        (lambda speed, depth: 1.0, {"vectorised": False}, r"shape \(\), expected \(2,\)"),
        (lambda speed, depth: depth + 1j, {}, "complex numbers, expected real"),
        (lambda speed, depth: [[1, 2], [3]], {}, "came as a list that holds no numbers"),
        (lambda speed, depth: None, {"vectorised": False}, "came with shape|holds no numbers"),
        (lambda speed, depth: {"tim": depth}, {}, r"a dict of \['tim'\], expected \['time'\]"),
        (lambda speed, depth: depth, {"outputs": (TIME, GRAVITY)}, r"an ndarray, expected a tuple or dict of"),
        (lambda speed, depth: (depth,), {"outputs": (TIME, GRAVITY)}, r"a tuple of 1, expected"),
    ],
)
def test_that_a_result_of_another_form_is_unreadable(function: Any, settings: Any, sentence: str) -> None:
    got = run(function, **settings)
    assert set(got.status) == {Status.UNREADABLE}
    assert np.isnan(got.outputs).all()
    assert re.search(sentence, got.messages[0]), got.messages[0]


@pytest.mark.parametrize("function", [lambda speed, depth: depth[1] / speed, lambda speed, depth: speed[0, 0]])
def test_that_a_function_of_one_row_at_a_time_gets_advice(function: Any) -> None:
    got = run(function)
    assert set(got.status) == {Status.RAISED}
    for message in got.messages:
        assert "IndexError" in message
        assert "if the function takes one row at a time, set `vectorised` to false" in message


@pytest.mark.parametrize("vectorised", [True, False])
def test_that_only_the_row_that_raises_is_lost(vectorised: bool) -> None:
    got = run(fussy, vectorised=vectorised)
    assert got.status == (Status.OK, Status.RAISED, Status.OK)
    assert got.messages == ("", "run r1: RuntimeError: no convergence", "")
    np.testing.assert_array_equal(got.outputs[[0, 2]], [[10.0, 20.0], [12.5, 15.0]])


def test_that_a_function_that_exits_does_not_end_the_worker() -> None:
    got = run(lambda speed, depth: sys.exit(4))
    assert set(got.status) == {Status.RAISED}
    assert got.messages[0] == "run r0: SystemExit: 4"


def test_that_an_interrupt_passes_through() -> None:
    def raise_interrupt(speed: Any, depth: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(raise_interrupt)


def test_that_a_row_that_is_not_finite_is_reported_by_output_and_label(recwarn: pytest.WarningsRecorder) -> None:
    values = VALUES.copy()
    values[1, 0] = 0.0
    got = run(travel_time, values)
    assert got.status == (Status.OK, Status.NAN, Status.OK)
    assert got.messages[1] == "run r1: output time[a] is inf"
    assert np.isnan(got.outputs[1]).all()
    assert not recwarn.list


def test_that_masked_numbers_are_not_used_as_data() -> None:
    got = run(lambda speed, depth: np.ma.masked_greater(depth, 45.0))
    assert got.messages[2] == "run r2: output time[a] is nan"


def test_that_a_function_that_works_in_place_does_not_change_the_inputs() -> None:
    def rude(speed: Any, depth: Any) -> Any:
        depth *= 2
        speed[:] = 0
        return depth

    given = VALUES.copy()
    np.testing.assert_array_equal(run(rude, given).outputs, 2 * VALUES[:, 1:])
    np.testing.assert_array_equal(given, VALUES)


def test_that_a_function_that_is_not_vectorised_after_all_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        got = run(lambda speed, depth: depth if speed > 0 else -depth)
    assert got.ok.all()
    assert "is it vectorised?" in caplog.text


def test_that_a_batch_of_another_form_raises() -> None:
    with pytest.raises(ValueError, match=r"shape \(B, 3\), one column for each of speed, depth\[1\], depth\[2\]"):
        run(travel_time, VALUES[:, :2])
    with pytest.raises(ValueError, match="must name 3 runs, but names 2"):
        model().evaluate(VALUES, context(2))
    with pytest.raises(ValueError, match="unique"):
        model().evaluate(VALUES, RunContext(["a", "b", "a"], Path()))


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("test_user_module", "function: 'test_user_module' must read 'package.module:function'"),
        ("test_user_module:", "must read"),
        (".user:f", "must read"),
        ("test_usr_module:f", "there is no module 'test_usr_module' on .* did you mean 'test_user_module'"),
        ("test_user_module.inner:f", "there is no module|raised"),
        ("test_user_module:g", "has no 'g'; there is 'f'"),
        ("test_user_module:constant", "is an int, which cannot be called"),
        ("needy:f", "'needy' needs a module 'surely_not_there', which is not installed"),
        ("broken:f", "importing 'broken' raised SyntaxError"),
        (7, "is an int, which cannot be called"),
    ],
)
def test_that_a_function_that_cannot_be_imported_is_reported(function: Any, sentence: str, tmp_path: Path) -> None:
    _user_module(tmp_path)
    (tmp_path / "needy.py").write_text("import surely_not_there\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(AdapterError, match=sentence) as caught:
        model(function, search_path=tmp_path)
    assert caught.value.setting == "function"


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda speed, deep: deep, "it takes 'speed', 'deep', was given 'speed', 'depth' (missing a required argument"),
        (lambda speed: speed, "it takes 'speed', was given 'speed', 'depth' (got an unexpected keyword argument"),
        (lambda: 0, "it takes nothing, was given 'speed', 'depth'"),
        (lambda speed, depth, /: depth, "positional"),
    ],
)
def test_that_inputs_by_names_that_the_function_does_not_know_are_reported(function: Any, sentence: str) -> None:
    with pytest.raises(AdapterError, match=re.escape(sentence)) as caught:
        model(function)
    assert caught.value.setting == "inputs"


def test_that_a_function_may_take_more_than_its_inputs() -> None:
    def travel_time_of_inputs(**inputs: Any) -> Any:
        return travel_time(inputs["speed"], inputs["depth"])

    # What a decorator takes counts, not what it wraps.
    travel_time_of_inputs.__wrapped__ = lambda v, z: z  # type: ignore[attr-defined]
    for function in (travel_time_of_inputs, lambda speed, depth, scale=1.0: depth, lambda *, speed, depth: depth):
        assert run(function).ok.all()


def test_that_a_function_without_a_signature_is_accepted() -> None:
    assert run(dict, outputs=(SPEED, DEPTH)).ok.all()


def test_that_a_misspelt_function_brings_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "spelling_module.py").write_text("def travel_time(): ...\n")
    with pytest.raises(AdapterError, match=r"has no 'traveltime'; did you mean 'travel_time'\?"):
        model("spelling_module:traveltime", search_path=tmp_path)


def test_that_a_missing_search_path_is_reported(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="search_path: there is no directory"):
        model("test_user_module:f", search_path=tmp_path / "none")


def test_that_a_module_with_the_name_of_a_loaded_one_is_reported(tmp_path: Path) -> None:
    (tmp_path / "joblib.py").write_text("def f(): ...\ndump = f\n")
    with pytest.raises(AdapterError, match=r"joblib.py has the name of a module that is loaded already.*rename"):
        model("joblib:dump", search_path=tmp_path)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"inputs": ()}, "inputs: must name at least one"),
        ({"outputs": (TIME, TIME)}, "outputs: names must differ, but 'time' comes twice"),
        ({"outputs": (Quantity("", "s"),)}, "outputs: holds a quantity without a name"),
        ({"outputs": (Quantity("t", "s", ()),)}, "outputs: 't' has an empty tuple of labels"),
        ({"inputs": (Quantity("t", "s", (1, "1")),)}, "inputs: the labels of 't' must differ"),
    ],
)
def test_that_unsound_quantities_are_reported(settings: Any, sentence: str) -> None:
    with pytest.raises(AdapterError, match=sentence):
        model(**settings)


def test_that_an_error_of_an_adapter_pickles() -> None:
    error = pickle.loads(pickle.dumps(AdapterError("timeout", "must be positive")))
    assert (error.setting, error.sentence) == ("timeout", "must be positive")


def test_that_a_module_next_to_the_config_works_in_a_worker_process(tmp_path: Path) -> None:
    (tmp_path / "test_worker_helper.py").write_text("from os import getpid\n")
    (tmp_path / "test_worker_module.py").write_text(
        "from test_worker_helper import getpid\ndef f(speed, depth):\n    return 0 * depth + getpid()\n"
    )
    named = model("test_worker_module:f", search_path=tmp_path)
    with joblib.parallel_config("loky", n_jobs=2):
        parts = joblib.Parallel()(joblib.delayed(named.evaluate)(VALUES, context(3)) for _ in range(2))
    got = Evaluations.concatenate(parts)
    assert got.ok.all()
    assert os.getpid() not in got.outputs


def test_that_a_fresh_process_unpickles_the_name_and_imports_the_module(tmp_path: Path) -> None:
    named = model("test_fresh_module:f", search_path=_user_module(tmp_path / "beside", name="test_fresh_module"))
    data = pickle.dumps(named)
    assert b"FACTOR" not in data
    (tmp_path / "model.pickle").write_bytes(data)
    code = (
        "import pickle, sys, numpy as np\n"
        "from invgp.adapters import RunContext\n"
        "m = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(m.digest, m.evaluate(np.array([[2.0, 4.0, 6.0]]), RunContext(['a'], None)).outputs.tolist())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model.pickle")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split(maxsplit=1) == [named.digest, "[[2.0, 3.0]]\n"]


def test_that_two_surveys_may_each_have_a_module_of_the_same_name(tmp_path: Path) -> None:
    first = model("test_namesake:f", search_path=_user_module(tmp_path / "one", "1", "test_namesake"))
    second = model("test_namesake:f", search_path=_user_module(tmp_path / "two", "10", "test_namesake"))
    values = VALUES[:1]
    for one, two in (
        (first, second),
        (pickle.loads(pickle.dumps(first)), pickle.loads(pickle.dumps(second))),
    ):
        assert one.evaluate(values, context(1)).outputs.tolist() == [[10.0, 20.0]]
        assert two.evaluate(values, context(1)).outputs.tolist() == [[100.0, 200.0]]
    assert first.digest != second.digest


def test_that_an_edited_module_is_imported_again_and_never_mixed(tmp_path: Path) -> None:
    old = model("test_edited:f", search_path=_user_module(tmp_path, "1", "test_edited"))
    data = pickle.dumps(old)
    new = model("test_edited:f", search_path=_user_module(tmp_path, "100", "test_edited"))
    assert new.evaluate(VALUES[:1], context(1)).outputs.tolist() == [[1000.0, 2000.0]]
    assert old.evaluate(VALUES[:1], context(1)).outputs.tolist() == [[10.0, 20.0]]
    assert old.digest != new.digest
    with pytest.raises(AdapterError, match="has changed since the model was made"):
        pickle.loads(data)


def test_that_the_digest_sees_units_labels_and_flags() -> None:
    variants = [
        model(),
        model(fussy),
        model(vectorised=False),
        model(inputs=(Quantity("speed", "km s-1"), DEPTH)),
        model(outputs=(Quantity("time", "s", ("a", "c")),)),
    ]
    assert len({m.digest for m in variants}) == len(variants)
    assert model().digest == model().digest


def test_that_a_name_is_found_for_any_callable() -> None:
    class Simulator:
        def __call__(self, speed: Any, depth: Any) -> Any:
            return depth

    assert model().name == "travel_time"
    assert model(name="mine").name == "mine"
    assert model(Simulator()).name == "Simulator"
    assert (model().rows_per_task, model(vectorised=False).rows_per_task) == (4096, 64)


def with_jacobian(speed: Any, depth: Any) -> Any:
    """Travel times, and their derivatives by all inputs in one array."""
    time = travel_time(speed, depth)
    by_speed = -time / np.asarray(speed)[..., None]
    by_depth = np.eye(2) / np.asarray(speed)[..., None, None]
    return time, np.concatenate([by_speed[..., None], by_depth], axis=-1)


def with_named_jacobian(speed: Any, depth: Any) -> Any:
    """The same by name, without the derivatives by the speed."""
    time, jacobian = with_jacobian(speed, depth)
    return time, {"depth": jacobian[..., 1:]}


@pytest.mark.parametrize("vectorised", [True, False])
def test_that_a_function_may_return_its_jacobian(vectorised: bool, tmp_path: Path) -> None:
    for function, known in ((with_jacobian, slice(None)), (with_named_jacobian, slice(1, None))):
        derived = model(function, vectorised=vectorised, jacobian=True)
        check_forward_model(derived, VALUES, tmp_path)
        outputs, jacobians = split_jacobian(derived, derived.evaluate(VALUES, context(3)).outputs)
        plain = model(vectorised=vectorised)
        np.testing.assert_array_equal(outputs, plain.evaluate(VALUES, context(3)).outputs)
        numeric = np.empty((3, 2, 3))
        for i, step in enumerate(1e-6 * np.eye(3)):
            both = [plain.evaluate(VALUES + sign * step, context(3)).outputs for sign in (1.0, -1.0)]
            numeric[..., i] = (both[0] - both[1]) / 2e-6
        np.testing.assert_allclose(jacobians[..., known], numeric[..., known], rtol=1e-6)
    assert not jacobians[..., 0].any()
    assert split_jacobian(plain, outputs)[1] is None


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (lambda time: time, "returned an ndarray, expected a tuple of the outputs and the Jacobian"),
        (lambda time: (time, np.ones((3, 2))), r"the Jacobian came with shape \(3, 2\), expected \(3, 2, 3\)"),
        (lambda time: (time, {"depth": np.ones((3, 2))}), r"by depth came with shape \(3, 2\), expected \(3, 2, 2\)"),
        (lambda time: (time, {"width": 1.0}), r"has the inputs \['width'\], expected some of \['speed', 'depth'\]"),
        (lambda time: (time, np.full((3, 2, 3), np.nan)), "the Jacobian has a number that is not finite"),
    ],
)
def test_that_a_wrong_jacobian_fails_its_runs_with_a_sentence(returned: Callable[..., Any], sentence: str) -> None:
    found = run(lambda speed, depth: returned(travel_time(speed, depth)), jacobian=True)
    assert not found.ok.any()
    assert found.outputs.shape == (3, 8)
    assert re.search(sentence, found.messages[0])


def test_that_the_cost_of_a_jacobian_is_a_number_of_runs() -> None:
    with pytest.raises(AdapterError, match=r"jacobian_cost: must be a number of runs, at least 0, was -1\.0"):
        model(with_jacobian, jacobian=True, jacobian_cost=-1.0)
    assert cost_of_run(model(with_jacobian, jacobian=True, jacobian_cost=0.5)) == 1.5
    assert cost_of_run(model()) == 1.0
