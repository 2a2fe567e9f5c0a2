"""Health and metrics answer while a server still fetches its model."""

import re
import socket
import urllib.error
import urllib.request

import pytest

from swarm_processes import BIN, Process, wait_for


@pytest.fixture
def silent_hub():
    """The address of a Hub that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def loading(tmp_path, silent_hub):
    """A server that waits for its model, and the address of its metrics."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        metrics = f"127.0.0.1:{free.getsockname()[1]}"
    command = [
        str(BIN / "blockswarm-server"),
        *("--model", "somebody/some-model", "--blocks", "0:4", "--cache-dir", str(tmp_path / "cache")),
        *("--listen", "127.0.0.1:0", "--dht-listen", "127.0.0.1:0", "--metrics-listen", metrics),
    ]
    process = Process(
        "loading", command, tmp_path, {"HF_ENDPOINT": silent_hub, "HF_HUB_OFFLINE": "0"}
    ).start()
    yield process, f"http://{metrics}"
    process.kill()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_a_loading_server_is_alive_not_ready_and_says_that_it_joins(loading):
    process, address = loading
    wait_for(lambda: get(f"{address}/healthz")[0] == 200, timeout=60, what="the endpoint answers")
    assert get(f"{address}/readyz")[0] == 503
    text = get(f"{address}/metrics")[1]
    assert 'blockswarm_server_state{state="joining"} 1.0' in text
    assert re.search(r'blockswarm_server_info\{.*model="some-model".*\} 1.0', text)
    assert process.stop(timeout=20) == 0, process.tail()
