"""Runs on a Ray cluster of two nodes: Ray's own processes, one of them killed without a word."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from streamlit.testing.v1 import AppTest

from recon_core.errors import AfterimageError, InputError
from recon_core.kinds import perform, perform_in
from recon_core.runs import StopFlag
from recon_core.scheduling import Ended, Places, cluster, move, queue
from recon_core.scheduling.inline import InlineExecutor
from recon_core.store import Run, RunState, RunStore, layout, lock
from recon_core.store.nested import trial_store
from recon_core.studies.record import read_record
from recon_core.studies.search import SearchConfig, perform_search
from recon_core.studies.study import StudyConfig, create_study, perform_study
from tests.faults.apps import small_disk, unhealed
from tests.gates import Gate, Gates, standing
from tests.processes import end_processes, end_writers, wait_for
from tests.small_models import imported_model
from tests.studies.tiny_studies import do_study, tiny_plan

pytestmark = [
    # Ray leaves sockets and log files to the end of the process.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
# Not 127.0.0.1, which Ray takes for "this machine as others see it": tests stay on the loopback.
LOOPBACK, SECOND = "127.0.0.2", "127.0.0.3"
ATTACK = {"recipe": "paper", "m": 4, "iterations": 400, "engine": "closed", "dtype": "float32", "measure_every": 50,
          "snapshots": 2, "device": "cpu"}  # fmt: skip
LONG = {
    "data": {"source": "circle", "n": 6},
    "model": {"widths": [30, 30]},
    "training": {"recipe": "paper", "epochs": 10**9},
}
PROJECT = Path(__file__).parents[2]
EACH = 401  # steps that a trial counts in its search


@pytest.fixture(scope="module")
def client_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def all_gates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gates]:
    """Of the whole file: nodes have the environment in which they were started."""
    with standing(tmp_path_factory.mktemp("gates")) as found:
        yield found


@pytest.fixture
def gates(all_gates: Gates) -> Iterator[Gates]:
    try:
        yield all_gates
    finally:
        all_gates.open_all()


@pytest.fixture(scope="module")
def folders() -> Iterator[Callable[[], str]]:
    """A folder of its own for each node, which deletes and unpacks there what is sent along, whoever is importing it.

    Not below pytest's, whose long names leave no room for the names of Ray's sockets.
    """
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
        for name in ("RAY_TMPDIR", "TMPDIR"):  # what Ray's processes and our own leave there is gone with it
            patch.setenv(name, root)
        try:
            yield lambda: tempfile.mkdtemp(dir=root)
        finally:  # a cluster whose start was cut off is nobody's to shut down
            end_writers(Path(root))


@pytest.fixture(scope="module")
def nodes(client_port: int, all_gates: Gates, folders: Callable[[], str]) -> Iterator[Any]:
    """A head with one core; tests add nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        from ray.cluster_utils import Cluster

        started = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "node_ip_address": LOOPBACK,
                "include_dashboard": False,
                "ray_client_server_port": client_port,
                "_system_config": {
                    "health_check_period_ms": 1000,  # or a dead node is mourned for half a minute
                    "worker_niceness": 0,  # or runs stand still while other tests use the cores
                },
            },
        )
        yield started
        started.shutdown()


@pytest.fixture
def second(nodes: Any, folders: Callable[[], str]) -> Any:
    """Another node with one core, which stays for the tests that follow, since a start takes seconds."""
    if not nodes.worker_nodes:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("AFTERIMAGE_STORE")  # it works for no test in particular
            nodes.add_node(num_cpus=1, node_ip_address=SECOND, temp_dir=folders())
    [node] = nodes.worker_nodes
    return node


@pytest.fixture
def alone(nodes: Any) -> Any:
    """The cluster with nothing but its head."""
    for node in list(nodes.worker_nodes):
        nodes.remove_node(node)
    return nodes


@pytest.fixture
def model(store: RunStore, tmp_path: Path) -> Run:
    return imported_model(store, tmp_path)


def asked(store: RunStore, model: Run, trials: int, **places: Any) -> Run:
    settings = {"trials": trials, "sampler": "random", "attack": ATTACK}
    config = SearchConfig.model_validate({"model": model.id, "settings": settings, **places})
    return store.create("search", config.model_dump(mode="json"), parents=[model.id])


def trials_of(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in run.read_json("trials")]


def search(run: Run, listener: Callable[..., None] = lambda *told: None, executor: Any = None) -> RunState:
    with run.writer() as writer:
        make = None if executor is None else lambda *asked: executor
        perform_search(run, writer, StopFlag(), listener, None, make)
    return run.status().state


def wait_until(executor: cluster.RayExecutor, condition: Callable[[], object], seconds: float = 120) -> list[Ended]:
    """What ended meanwhile."""
    ended: list[Ended] = []
    deadline = time.monotonic() + seconds
    while not condition():
        ended += executor.wait(0.2)
        assert time.monotonic() < deadline, f"it did not happen within {seconds:.0f} s"
    return ended


def below(node: Any) -> list[psutil.Process]:
    """Processes that Ray has started on a node, and what those started."""
    [raylet] = node.all_processes["raylet"]
    return psutil.Process(raylet.process.pid).children(recursive=True)


def command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # gone meanwhile
        return []


def goes_on_here(run: Run) -> None:
    """To its end, taken back from its cluster."""
    move(run, {"cluster": "none"})
    queue.resume(run)
    wait_for(lambda: run.status().state is RunState.DONE)
    wait_for(lambda: not lock.is_held(run.dir / layout.LOCK))  # it has tidied up, too


def test_a_node_killed_in_a_search_of_twenty_loses_nothing(
    nodes: Any, second: Any, store: RunStore, model: Run, gates: Gates
) -> None:
    here = asked(store, model, 20)
    search(here, executor=InlineExecutor(perform_in))
    run = asked(store, model, 20, cluster=nodes.address)
    done_at_the_kill: dict[str, int] = {}
    shut: list[Gate] = []

    def kill_in_the_middle(fraction: float | None, message: str) -> None:
        if int(message.split()[0]) >= 6 and not shut:
            shut.append(gates.close("trial", step=50))
        if shut and len(shut[0].arrivals()) == 2 and not done_at_the_kill:  # both nodes are in the middle of one
            for found in trial_store(run).list("trial"):
                if found.status.state is RunState.DONE:
                    done_at_the_kill[found.id] = (trial_store(run).root / found.id / "result.json").stat().st_mtime_ns
            nodes.remove_node(second, allow_graceful=False)
            shut[0].open()
        for trial, written in done_at_the_kill.items():  # until the search tidies up, none is done again
            result = trial_store(run).root / trial / "result.json"
            assert not result.exists() or result.stat().st_mtime_ns == written

    assert search(run, kill_in_the_middle) is RunState.DONE
    assert 6 <= len(done_at_the_kill) < 20
    assert trials_of(run) == trials_of(here)
    for name, tensor in here.tensors("candidates").items():
        torch.testing.assert_close(run.tensors("candidates")[name], tensor)
    assert len(run.metrics()) == 20
    assert store.check() == []


def test_a_run_on_a_node_that_dies_goes_on_from_its_checkpoint_elsewhere(
    nodes: Any, second: Any, store: RunStore, tmp_path: Path
) -> None:
    """One long training, told by its log where it was and where it went on."""
    runs = [store.create("train", LONG) for _ in range(2)]
    executor = cluster.RayExecutor(Places(cluster=nodes.address), tmp_path / "log.txt")
    try:
        for run in runs:
            executor.submit(run)
        assert executor.free() == 0
        # The copies here.
        assert wait_until(executor, lambda: all((run.dir / "checkpoints").is_dir() for run in runs)) == []
        assert [run.status().state for run in runs] == [RunState.RUNNING] * 2
        reached = min(run.status().step for run in runs)
        nodes.remove_node(second, allow_graceful=False)
        log = tmp_path / "log.txt"
        assert wait_until(executor, lambda: log.exists() and log.read_text().endswith("\n")) == []
        [lost] = [run for run in runs if run.id in log.read_text()]
        other = next(run for run in runs if run is not lost)
        assert other.request_cancel()  # so that there is room for the one that was lost
        wait_until(executor, lambda: any("resumed after" in line for line in lost.log_tail(50)))
        wait_until(executor, lambda: lost.status().step > reached)
        assert other.status().state is RunState.CANCELLED
    finally:
        executor.close()  # it does not wait for a run that never ends
    assert lost.status().state is RunState.CANCELLED
    assert store.check() == []


def test_a_study_on_a_cluster_comes_to_what_it_comes_to_here(
    nodes: Any, second: Any, store: RunStore, tmp_path: Path
) -> None:
    one = {"references": [], "untrained_control": False}
    away = create_study(store, StudyConfig(plan=tiny_plan(**one), cluster=nodes.address))
    with away.writer() as writer:
        perform_study(away, writer, StopFlag(), lambda *told: None, None)
    assert away.status().state is RunState.DONE
    here = create_study(RunStore(tmp_path / "here"), StudyConfig(plan=tiny_plan(**one)))
    do_study(here)
    for found, expected in zip(read_record(away).cells, read_record(here).cells, strict=True):
        known = {name: value for name, value in expected.numbers.items() if not name.endswith("_seconds")}
        assert known.items() <= found.numbers.items()
    assert store.check() == []


def test_a_search_in_the_dashboard_is_killed_followed_stopped_and_taken_back(
    nodes: Any, second: Any, store: RunStore, model: Run, gates: Gates
) -> None:
    here = asked(store, model, 16)
    search(here, executor=InlineExecutor(perform_in))
    run = asked(store, model, 16, cluster=nodes.address)
    gate = gates.close("search", step=4 * EACH)  # three or four trials have ended, two are under way
    try:
        queue.submit(run)
        os.kill(gate.wait_one().pid, signal.SIGKILL)
        wait_for(lambda: run.status().state is RunState.INTERRUPTED)
        assert 3 <= len(run.metrics()) < 8
        gate.forget()
        gate.move(8 * EACH)
        assert unhealed(store) == []
        queue.resume(run)
        gate.wait()
        page = AppTest.from_file(str(PROJECT / "app.py"), default_timeout=60)
        page.query_params["run"] = run.id
        page.switch_page("pages/2_Reconstruct.py").run()
        assert not page.exception
        [bar] = page.main.get("progress")
        assert "of 16 trials ended" in bar.proto.text
        page.button(key=f"cancel-{run.id}").click().run()
        wait_for(lambda: run.status().state is RunState.CANCELLED)
        assert len(run.metrics()) < 16
        gate.open()
        goes_on_here(run)
    finally:
        end_processes(store.root)
    assert trials_of(run) == trials_of(here)
    assert store.check() == []


def test_a_study_on_a_cluster_that_is_cancelled_can_go_on_here(
    nodes: Any, second: Any, store: RunStore, gates: Gates
) -> None:
    run = create_study(
        store, StudyConfig(plan=tiny_plan(references=[], untrained_control=False), cluster=nodes.address)
    )
    gates.close("reconstruct")

    def at_work(kind: str) -> list[Run]:
        return [store.open(one.id) for one in store.list(kind) if one.status.state is RunState.RUNNING]

    try:
        queue.submit(run)
        wait_for(lambda: any(one.status().step > 0 for one in at_work("reconstruct")))
        assert queue.cancel(run)
        wait_for(lambda: run.status().state is RunState.CANCELLED)
        assert at_work("reconstruct") == []
        assert "Traceback" not in "".join(run.log_tail(50))
    finally:
        end_processes(store.root)
    assert unhealed(store) == []


def test_who_takes_the_news_is_killed_again_and_again(
    nodes: Any, second: Any, store: RunStore, model: Run, tmp_path: Path, gates: Gates
) -> None:
    """The actor beside us, with all that was on its way."""
    attack = {"model": model.id, "settings": {**ATTACK, "iterations": 500, "measure_every": 5}}
    here, *runs = (store.create("reconstruct", attack, parents=[model.id]) for _ in range(3))
    perform(here, StopFlag())
    gate = gates.close("reconstruct", step=100)
    executor = cluster.RayExecutor(Places(cluster=nodes.address), tmp_path / "log.txt")
    try:
        for run in runs:
            executor.submit(run)
        for number in range(1, 4):
            wait_until(executor, lambda number=number: all(len(run.metrics()) > 20 * number for run in runs))
            gate.move(100 * (number + 1))  # from here to there is on its way
            gate.wait(2)
            homes = [process for process in below(nodes.head_node) if "ray::_ReportActor" in " ".join(command(process))]
            assert homes
            for process in homes:
                process.kill()
        gate.open()
        wait_until(executor, lambda: all(run.status().state is RunState.DONE for run in runs))
        wait_until(executor, lambda: executor.free() == 2)
    finally:
        executor.close()
    for run in runs:
        assert [row["step"] for row in run.metrics()] == [row["step"] for row in here.metrics()]
        torch.testing.assert_close(run.tensors("candidates")["candidates"], here.tensors("candidates")["candidates"])
    assert store.check() == []


def test_a_disk_that_is_full_here_stops_a_search_that_then_goes_on(
    nodes: Any, second: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", "2m") as disk:
        store = RunStore(disk / "runs")
        model = imported_model(store, tmp_path)
        here, run = asked(store, model, 12), asked(store, model, 12, cluster=nodes.address)
        search(here, executor=InlineExecutor(perform_in))
        ballast = disk / "ballast"

        def fill(fraction: float | None, message: str) -> None:
            if int(message.split()[0]) >= 3 and not ballast.exists():
                with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
                    while True:
                        file.write(b"x" * 4096)

        with pytest.raises(AfterimageError, match="the disk is full"):
            search(run, fill)
        assert unhealed(store) == []
        ballast.unlink()
        assert search(run) is RunState.DONE
        assert trials_of(run) == trials_of(here)
        assert store.check() == []


def test_a_cluster_that_does_not_answer_is_a_sentence_with_the_way_out(
    nodes: Any, second: Any, store: RunStore, model: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = asked(store, model, 4, cluster=nodes.address)

    def lost(executor: cluster.RayExecutor, seconds: float) -> list[Any]:
        raise ConnectionError("gone")

    monkeypatch.setattr(cluster.RayExecutor, "_ready", lost)
    with pytest.raises(AfterimageError, match=rf"does not answer any more \(Conn.*runs resume {run.id} --cluster none"):
        search(run)
    assert run.status().state is RunState.FAILED
    monkeypatch.undo()
    move(run, {"cluster": "none"})
    assert search(run) is RunState.DONE


def test_from_outside_a_cluster(nodes: Any, second: Any, client_port: int, store: RunStore, model: Run) -> None:
    """By Ray's client: nothing of this process is part of the cluster."""
    here, run = asked(store, model, 4), asked(store, model, 4, cluster=f"ray://{LOOPBACK}:{client_port}")
    search(here, executor=InlineExecutor(perform_in))
    assert search(run) is RunState.DONE
    assert trials_of(run) == trials_of(here)
    assert store.check() == []


@pytest.mark.parametrize("wish", [{"gpus": 0.5}, {"cpus": 3}])
def test_more_than_any_node_has_is_a_sentence(nodes: Any, second: Any, tmp_path: Path, wish: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"a run is to have .* no node .* has that: they have 1 core and 1 core; ask"):
        cluster.RayExecutor(Places(cluster=nodes.address, **wish), tmp_path / "log.txt")


def test_every_node_is_asked_whether_it_is_fit(nodes: Any, second: Any, cli: Callable[..., Any]) -> None:
    code, table, said = cli("cluster", nodes.address)
    assert (code, said.strip()) == (0, "2 of 2 nodes can do runs, 2 cores in all")
    assert [line.split()[0] for line in table.splitlines()[1:]] == [LOOPBACK, SECOND]
    assert table.count(torch.__version__) == 2


def test_a_run_that_waits_for_room_is_cancelled_at_once(alone: Any, store: RunStore, tmp_path: Path) -> None:
    """Somebody else has the only core."""
    first, waiting = (store.create("train", LONG) for _ in range(2))
    others = cluster.RayExecutor(Places(cluster=alone.address), tmp_path / "log.txt")
    try:
        for run in (first, waiting):
            others.submit(run)
        wait_until(others, lambda: first.status().step > 0)
        assert waiting.status().state is RunState.QUEUED
        assert waiting.request_cancel()
        assert [ended.run_id for ended in wait_until(others, lambda: not waiting.cancel_requested())] == [waiting.id]
        assert waiting.status().state is RunState.CANCELLED
        assert first.status().state is RunState.RUNNING
    finally:
        others.close()
        others.close()  # whoever stops early closes twice


def test_runs_share_a_gpu_where_there_is_one(
    alone: Any, folders: Callable[[], str], store: RunStore, tmp_path: Path
) -> None:
    """Ray takes our word for the GPU: what is tested is who gets a share of it."""
    node = alone.add_node(num_cpus=2, num_gpus=1, node_ip_address=SECOND, temp_dir=folders())
    try:
        executor = cluster.RayExecutor(Places(cluster=alone.address, gpus=0.5), tmp_path / "log.txt")
        try:
            assert executor.places() == 2  # the head's core has no GPU beside it
            runs = [store.create("train", LONG) for _ in range(2)]
            for run in runs:
                executor.submit(run)
            assert wait_until(executor, lambda: all(run.status().step > 0 for run in runs)) == []
            workers = [process for process in below(node) if "recon_core.worker" in command(process)]
            assert [process.environ().get("CUDA_VISIBLE_DEVICES") for process in workers] == ["0", "0"]
        finally:
            executor.close()
        assert [run.status().state for run in runs] == [RunState.CANCELLED] * 2
    finally:
        alone.remove_node(node)


@pytest.mark.parametrize("address", [f"{LOOPBACK}:9", f"ray://{LOOPBACK}:9"])
def test_an_address_where_nobody_answers_is_a_sentence(address: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"no Ray cluster answers at '{address}'.*ray start --head"):
        cluster.RayExecutor(Places(cluster=address), tmp_path / "log.txt")


def test_a_cluster_that_goes_away_leaves_a_search_that_goes_on_here(
    store: RunStore, model: Run, monkeypatch: pytest.MonkeyPatch, gates: Gates, folders: Callable[[], str]
) -> None:
    """All of it at once, in the middle."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")  # else Ray itself waits for a minute
    from ray.cluster_utils import Cluster

    here = asked(store, model, 12)
    search(here, executor=InlineExecutor(perform_in))
    other = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 2, "node_ip_address": "127.0.0.4", "include_dashboard": False},
    )
    try:
        run = asked(store, model, 12, cluster=other.address)
        gate = gates.close("search", step=4 * EACH)
        queue.submit(run)
        gate.wait()
        other.head_node.kill_all_processes(check_alive=False, allow_graceful=False)
        gate.open()
        # Ray may end a process whose own node is gone before we can say anything.
        wait_for(lambda: run.status().state in (RunState.FAILED, RunState.INTERRUPTED))
        if run.status().state is RunState.FAILED:
            assert "does not answer any more" in run.status().message
        assert unhealed(store) == []
        goes_on_here(run)
    finally:
        end_processes(store.root)
        other.shutdown()
    assert trials_of(run) == trials_of(here)
    assert store.check() == []
