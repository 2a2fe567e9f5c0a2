"""Dashboards and alerts name only series, labels and label values that the processes export."""

import pytest

import boards

EXPORTED = boards.exported()
NAMED = {
    **{
        f"{name}: {where}": boards.substituted(expression, namespace=".*", model=".*")
        for name in boards.DASHBOARDS
        for where, expression in boards.expressions(boards.load(name))
    },
    **{rule["alert"]: rule["expr"] for rule in boards.rules()},
}


@pytest.mark.parametrize("where", NAMED)
def test_every_series_is_exported_with_the_labels_that_are_asked_for(where):
    found = list(boards.selectors(NAMED[where]))
    assert found
    for selector in found:
        assert selector.name in EXPORTED
        series = EXPORTED[selector.name]
        for label, operator, value in selector.matchers:
            assert label in series.labels | boards.TARGET_LABELS, f"{selector.name} has no label {label}"
            if operator == "=":
                assert any(sample.get(label) == value for sample in series.samples), f"{label}={value}"


@pytest.mark.parametrize("name", boards.DASHBOARDS)
def test_variables_ask_for_exported_series(name):
    for variable in boards.load(name)["templating"]["list"]:
        if variable["type"] == "query":
            for selector in boards.selectors(variable["query"]["query"]):
                assert selector.name in EXPORTED


def test_every_series_of_the_swarm_is_on_a_dashboard_or_in_an_alert():
    """What is worth exporting is worth showing; the few exceptions are shown as sums elsewhere."""
    named = {selector.name for text in NAMED.values() for selector in boards.selectors(text)}
    ours = {name for name in EXPORTED if name.startswith("blockswarm_")}
    derived = {
        "blockswarm_kv_cache_occupancy_ratio",  # of one server; spans divide sums
        "blockswarm_directory_peers",
        "blockswarm_directory_stored_keys",
        "blockswarm_queue_seconds_sum",
        "blockswarm_queue_seconds_count",
    }
    assert ours - named == derived
