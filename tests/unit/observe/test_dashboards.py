"""The dashboards are what Grafana and their readers expect, and ask Prometheus what it can parse."""

import re
import subprocess

import pytest
import yaml

import boards

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24


@pytest.fixture(params=sorted(boards.DASHBOARDS), scope="module")
def board(request):
    return boards.load(request.param)


def every(value, key):
    """Each value of `key`, however deep."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == key:
                yield inner
            yield from every(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from every(inner, key)


def test_both_are_there_under_ids_that_links_may_rely_on():
    assert {name: boards.load(name)["uid"] for name in boards.DASHBOARDS} == {
        "swarm": "blockswarm-swarm",
        "operator": "blockswarm-operator",
    }


def test_the_schema_is_current(board):
    assert board["schemaVersion"] >= 41
    assert "id" not in board, "Grafana gives each installation's dashboard a number of its own"


def test_data_source_namespace_and_model_are_chosen_by_the_reader(board):
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert set(variables) == {"datasource", "namespace", "model"}
    assert variables["datasource"]["type"] == "datasource"
    # No text of its own for "All": a pattern that matches everything would match the directories' model keys too.
    assert all("allValue" not in variable for variable in variables.values())


def test_no_data_source_is_written_down(board):
    assert list(every(board, "datasource"))
    assert all(source == SOURCE for source in every(board, "datasource"))


def test_every_panel_says_what_it_shows(board):
    for panel in boards.panels(board):
        assert len(panel["description"]) > 10, panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
    titles = [panel["title"] for panel in board["panels"]]
    assert len(titles) == len(set(titles))


def test_panels_have_ids_of_their_own_and_lie_side_by_side(board):
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in boards.panels(board):
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs))


def test_rates_follow_the_scrape_interval_and_nothing_averages_ratios(board):
    for where, expression in boards.expressions(board):
        assert set(re.findall(r"\[([^\]]*)\]", expression)) <= {"$__rate_interval"}, where
        assert not re.search(r"\bavg\b|occupancy_ratio", expression), where
        assert not re.search(r"blockswarm_\w+_total(?!\{[^}]*\}\[|\[)", expression), (
            f"{where}: a bare counter"
        )


def test_every_division_is_safe_against_zero(board):
    for where, expression in boards.expressions(board):
        for divisor in re.findall(r"/(?: on \([^)]*\)(?: group_left \([^)]*\))?)? (.*)", expression):
            assert re.search(r"> 0\)", divisor), where


def test_labels_of_legends_are_in_the_result(board):
    for panel in boards.panels(board):
        for target in panel["targets"]:
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                known = label in ("namespace", "pod") or re.search(rf"\b{label}\b", target["expr"])
                assert known, panel["title"]


def test_prometheus_can_parse_every_expression(board, tmp_path):
    rules = [
        {"record": f"expression_{number}", "expr": boards.substituted(text, __rate_interval="1m")}
        for number, (_, text) in enumerate(boards.expressions(board))
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
