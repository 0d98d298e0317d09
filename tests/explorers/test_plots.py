"""A figure holds what it was given."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

from allranks import plots, schedules, topology
from allranks.simulate import simulate


@pytest.fixture(autouse=True)
def closed_figures(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: None)
    yield
    plt.close("all")


def test_pictures_stand_in_rows_under_their_label():
    plots.pictures({"data": np.zeros((3, 8, 8)), "drawn": np.ones((3, 8, 8))})
    axes = plt.gcf().axes
    assert len(axes) == 6
    assert [axes[0].get_ylabel(), axes[3].get_ylabel()] == ["data", "drawn"]
    assert (axes[3].images[0].get_array() == 1).all()


def test_losses_are_lines_with_labels():
    plots.losses({"serial": [3.0, 2.0], "ranks": [3.0, 2.0]})
    (axes,) = plt.gcf().axes
    assert [line.get_label() for line in axes.lines] == ["serial", "ranks"]
    assert list(axes.lines[0].get_ydata()) == [3.0, 2.0]


def test_messages_are_arrows_from_source_to_destination():
    plots.messages([(1, 0, 1), (2, 0, 2), (2, 1, 3)])
    (axes,) = plt.gcf().axes
    arrows = [(text.xyann[1], text.xy[1]) for text in axes.texts]
    assert arrows == [(0, 1), (0, 2), (1, 3)]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["round 1", "round 2"]


def test_queues_hold_operations_in_their_order_and_arrows_join_what_waits():
    plots.queues(
        {"hangs": ([["send", "receive"], ["send", "receive"]], [((0, 0), (1, 1))]), "runs": ([["x"]], [])}
    )
    hangs, runs = plt.gcf().axes
    words = {text.get_position(): text.get_text() for text in hangs.texts if text.get_text()}
    assert words == {(0, 0): "send", (1, 0): "receive", (0, 1): "send", (1, 1): "receive"}
    assert [(text.xyann, text.xy) for text in hangs.texts if hasattr(text, "xy")] == [((0, 0), (1, 1))]
    assert [hangs.get_title("left"), runs.get_title("left")] == ["hangs", "runs"]


def test_message_times_are_drawn_in_units_of_the_latency():
    plots.message_times([1, 1000], [2e-6, 4e-6], α=2e-6, β=2e-9)
    measured, model, line = plt.gcf().axes[0].lines
    assert list(measured.get_ydata()) == [1.0, 2.0]
    assert list(model.get_ydata()) == pytest.approx([1.001, 2.0])
    assert line.get_xdata()[0] == pytest.approx(1000)


def test_times_of_collectives_are_lines_and_measured_ones_points():
    curves = {"ring": [3, 4], "double_tree": [2, 9]}
    plots.collective_times([10, 100], curves, {"ring": [3.5, 4], "double_tree": [2, 8]})
    (axes,) = plt.gcf().axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[3, 4], [3.5, 4], [2, 9], [2, 8]]
    assert [line.get_linestyle() for line in axes.lines] == ["-", "None", "--", "None"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ring", "double tree"]


def test_a_timeline_has_a_bar_for_each_phase_of_each_rank():
    bars = [
        ("rank 0", "forward", 0.0, 0.25),
        ("rank 0", "backward", 0.25, 1.0),
        ("rank 1", "forward", 0.0, 0.5),
    ]
    forward, backward = plots.timeline(bars, unit="the step = 1").data
    assert (forward.name, forward.y) == ("forward", ("rank 0", "rank 1"))
    assert (forward.base, forward.x) == ((0.0, 0.0), (0.25, 0.5))
    assert (backward.name, backward.base, backward.x) == ("backward", (0.25,), (0.75,))


def test_parts_stand_end_to_end():
    plots.parts({"flat": {"inside": 3, "across": 1}, "two-level": {"inside": 2}}, "bytes")
    (axes,) = plt.gcf().axes
    assert [(bar.get_x(), bar.get_width()) for bar in axes.patches] == [(0, 3), (0, 2), (3, 1), (2, 0)]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["inside", "across"]


def test_networks_have_a_line_for_each_link_and_a_mark_for_each_node():
    graphs = {
        "fat tree": topology.fat_tree_graph(4),
        "rail": topology.rail_graph(4, 2),
        "dragonfly": topology.dragonfly_graph(4, 1, 1),
        "torus": topology.torus_graph(4, 4),
    }
    plots.networks(graphs)
    for axes, (label, graph) in zip(plt.gcf().axes, graphs.items(), strict=True):
        assert axes.get_xlabel() == label
        assert len(axes.lines) == sum(map(len, graph.values())) / 2
        assert sum(len(marks.get_offsets()) for marks in axes.collections) == len(graph)


def test_ranks_that_talk_have_a_square_and_nodes_are_separated():
    sent = {(0, 1): 3, (1, 0): 3, (0, 2): 1, (2, 0): 1}
    plots.who_sends_to_whom(sent, 2, {pair: "tp" if 1 in pair else "dp" for pair in sent})
    (axes,) = plt.gcf().axes
    assert [text.get_text() for text in axes.texts] == ["tp\n3", "tp\n3", "dp\n1", "dp\n1"]
    assert len(axes.patches) == len(sent) and len(axes.lines) == 2
    assert axes.get_ylabel() == "from rank"


def test_what_is_held_is_stacked_over_the_events():
    history = {"weights": [2e6, 2e6, 2e6], "activations": [0, 1e6, 3e6]}
    plots.held_over_time(history, {"forward": 1}, capacity=4e6)
    (axes,) = plt.gcf().axes
    assert [layer.get_label() for layer in axes.collections] == ["weights", "activations"]
    tops = [max(layer.get_paths()[0].vertices[:, 1]) for layer in axes.collections]
    assert tops == [2, 5]
    assert [text.get_text() for text in axes.texts] == ["forward"]
    assert [list(line.get_ydata()) for line in axes.lines[-1:]] == [[4, 4]]


def test_parts_of_models_are_points_beside_the_capacity():
    parts = {"small": {"states": 1e9, "activations": 2e9}, "large": {"states": 3e12, "activations": 4e11}}
    plots.parts_by_model(parts, 80e9, "80 GB")
    (axes,) = plt.gcf().axes
    assert [list(line.get_xdata()) for line in axes.lines[:2]] == [[1, 3000], [2, 400]]
    assert list(axes.lines[2].get_xdata()) == [80, 80]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["small", "large"]


def test_layouts_are_points_and_some_are_marked():
    plots.layouts([(10, 30), (20, 40), (70, 35)], {"published": (20, 40)})
    (axes,) = plt.gcf().axes
    assert axes.collections[0].get_offsets().tolist() == [[10, 30], [20, 40], [70, 35]]
    assert [(list(line.get_xdata()), line.get_label()) for line in axes.lines] == [([20], "published")]


def test_each_series_has_a_number_for_each_model():
    plots.by_model({"printed": [44, 52], "predicted": [58, 46]}, ["1.7", "1008"], "share of the peak (%)")
    (axes,) = plt.gcf().axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[44, 52], [58, 46]]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1.7", "1008"]
    assert axes.get_ylim()[0] > 0
    plots.by_model({"states": [33, 51]}, ["1.7", "1008"], "states (GB)", bottom=0)
    assert plt.gcf().axes[0].get_ylim()[0] == 0


def test_what_is_held_in_a_step_ends_at_one():
    plots.held_in_a_step({"stage 0": [1e6, 3e6, 2e6], "stage 1": [1e6, 2e6]})
    (axes,) = plt.gcf().axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[1, 3, 2], [1, 2]]
    assert [list(line.get_xdata()) for line in axes.lines] == [[0, 0.5, 1], [0, 1]]


def test_bytes_sent_are_a_bar_for_each_rank_beside_the_bound():
    plots.sent_by_rank({"ring": [1.5, 1.5], "binomial_tree": [2, 1]}, bound=1.5)
    (axes,) = plt.gcf().axes
    assert [bar.get_height() for bar in axes.patches] == [1.5, 1.5, 2, 1]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["bound", "ring", "binomial tree"]
    assert list(axes.lines[0].get_ydata()) == [1.5, 1.5]


def test_operations_are_points_under_a_roof():
    plots.roofline({"addition": (0.02, 0.02), "product": (7, 0.9)})
    (axes,) = plt.gcf().axes
    roof, addition, product, _ = axes.lines
    assert list(roof.get_ydata())[1:] == [1, 1]
    assert roof.get_xdata()[0] == roof.get_ydata()[0]
    assert [addition.get_label(), product.get_label()] == ["addition", "product"]
    assert (product.get_xdata()[0], product.get_ydata()[0]) == (7, 0.9)


def test_what_is_kept_over_a_step_has_a_panel_for_each_way():
    plots.kept_over_a_step({"none": ([0, 5, 9, 0], 2), "full": ([0, 1, 5, 0], 1)}, "kept (sbh)")
    panels = plt.gcf().axes
    assert [panel.get_xlabel() for panel in panels] == ["none", "full"]
    assert list(panels[0].lines[0].get_ydata()) == [0, 5, 9, 0]
    assert panels[1].lines[1].get_xdata()[0] == 1


def test_ratios_are_lines_around_one():
    plots.ratios([1, 10, 100], {"16 ranks": [2, 0.5, 1], "64 ranks": [4, 2, 1]}, "size", "time")
    ax = plt.gca()
    assert [list(line.get_ydata()) for line in ax.lines] == [[2, 0.5, 1], [4, 2, 1], [1, 1]]
    assert ax.get_xscale() == ax.get_yscale() == "log"


def test_lines_against_ranks_have_a_tick_for_each_number_of_ranks():
    plots.against_ranks([2, 8], {"near": [0.1, 0.4], "far": [0.5, 2]}, "ratio")
    ax = plt.gca()
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.1, 0.4], [0.5, 2], [1, 1]]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "8"]


def test_a_unit_is_a_bar_from_when_to_when_it_is_whole():
    plots.whole_units({"dropped": [("0", 1, 3), ("0", 6, 8), ("1", 2, 4)], "kept": [("0", 1, 8)]})
    dropped, kept = plt.gcf().axes
    bars = [(bar.get_x(), bar.get_width(), bar.get_y() + 0.35) for bar in dropped.patches]
    assert bars == [(1, 2, pytest.approx(0)), (6, 2, pytest.approx(0)), (2, 2, pytest.approx(1))]
    assert [label.get_text() for label in dropped.get_yticklabels()] == ["0", "1"]
    assert len(kept.patches) == 1


def test_a_gantt_has_what_was_measured_below_what_was_simulated():
    plots.gantt([(0, "F", 0, 1), (1, "BW", 1, 3)], [(0, "F", 0, 1.1), (1, "BW", 1.2, 3.3)], "time")
    ax = plt.gca()
    boxes = [each.get_paths()[0].get_extents() for each in ax.collections]
    assert [(box.x0, box.x1) for box in boxes] == [(0, 1), (1, 3), (0, 1.1), (1.2, pytest.approx(3.3))]
    assert [round(box.y0, 2) for box in boxes] == [-0.4, 0.6, 0, 1]
    assert ax.get_legend().get_title().get_text() == "above: simulated, below: measured"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["rank 0", "rank 1"]


def test_a_gantt_names_the_kinds_of_operations_that_it_has():
    split = [(0, "F", 0, 1), (0, "B", 1, 2), (0, "W", 2, 3)]
    plots.gantt(split, split, "time")
    legend = plt.gca().get_legend()
    assert [label.get_text() for label in legend.texts] == ["forward", "input gradient", "weight gradient"]


def test_lanes_are_boxes_with_the_number_of_the_micro_batch():
    slots = {"two": [(0, ("F", 0, 0), 0, 1), (1, ("F", 3, 1), 1, 2)], "one": [(0, ("BW", 5, 0), 1, 3)]}
    plots.lanes(slots, "time")
    two, one = plt.gcf().axes
    assert [text.get_text() for text in two.texts] == ["0", "3"]
    assert [label.get_text() for label in one.get_yticklabels()] == ["rank 0"]
    assert [axes.get_title("left") for axes in (two, one)] == ["two", "one"]
    assert two.get_xlim() == (0, 3)
    assert [text.get_text() for text in plt.gcf().legends[0].texts] == ["forward", "backward"]


def test_a_binade_is_a_bar_that_starts_at_its_exponent():
    plots.binades({"plain": {-20: 0.25, -19: 0.5}, "scaled": {-4: 1.0}}, {"0 below": -25})
    plain, scaled = plt.gcf().axes
    assert [(bar.get_x(), bar.get_height()) for bar in plain.patches] == [(-20, 25), (-19, 50)]
    assert [bar.get_height() for bar in scaled.patches] == [100]
    assert list(plain.lines[0].get_xdata()) == [-25, -25]


def test_curves_are_drawn_against_what_is_named():
    plots.against([1, 2], {"dropped": [30, 10], "empty": [30, 55]}, "capacity factor", "%")
    (axes,) = plt.gcf().axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[30, 10], [30, 55]]
    assert axes.get_xlabel() == "capacity factor" and axes.get_ylim()[0] == 0


def test_each_block_of_a_matrix_says_who_holds_it():
    held = {"X": {(0, 0): "0, 1", (1, 0): "2, 3"}, "Y": {(0, 0): "0 + 1"}}
    plots.blocks({"cut": held})
    first, second = plt.gcf().axes
    assert [each.get_text() for each in first.texts] == ["0, 1", "2, 3"]
    assert [box.get_xy() for box in first.patches] == [(0, 0), (0, 0.5)]
    assert [each.get_text() for each in second.texts] == ["0 + 1"] and first.get_ylabel() == "X"


def test_bandwidths_are_lines_and_links_are_level():
    plots.break_even([256, 512], {"model": [4.0, 2.0]}, {"25 Gbit/s": 3.125})
    (axes,) = plt.gcf().axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[4.0, 2.0], [3.125, 3.125]]
    assert [text.get_text() for text in axes.texts] == ["25 Gbit/s"]


def test_bars_stand_in_groups_a_series_in_one_colour():
    plots.grouped({"a": {"first": 1, "later": 2}, "b": {"first": 3, "later": 4}}, "requests")
    (axes,) = plt.gcf().axes
    first, later = axes.containers
    assert [bar.get_width() for bar in first] == [1, 3]
    assert [bar.get_width() for bar in later] == [2, 4]
    assert first[0].get_y() < later[0].get_y() < first[1].get_y()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]


def test_cuts_say_who_meets_each_part_of_the_tokens_and_of_the_weights():
    plots.cuts({"data": ([0, 1], [["all", "all"]]), "depth": (["all"] * 2, [[0, 0], [1, 1]])})
    data, depth = plt.gcf().axes
    assert [data.get_title("left"), depth.get_title("left")] == ["data", "depth"]
    assert [text.get_text() for text in data.texts] == ["0", "1", "all"]
    assert [text.get_text() for text in depth.texts] == ["all", "0", "1"]
    grey, first = data.patches[2].get_facecolor(), data.patches[0].get_facecolor()
    assert grey == depth.patches[0].get_facecolor() and first == depth.patches[1].get_facecolor()
    assert [(box.get_width(), box.get_height()) for box in depth.patches] == [(1, 2), (2, 1), (2, 1)]


def test_calls_stand_in_the_order_of_their_rank_with_their_bytes():
    plots.calls([[("send", 8)], [("recv", 8), ("send", 16), ("send", 16)]])
    (axes,) = plt.gcf().axes
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {(0, 0): "8", (0, 1): "8", (1, 1): "16", (2, 1): ""}
    boxes = [(box.get_center()[0], box.get_center()[1], box.get_facecolor()) for box in axes.patches[:3]]
    assert [(round(x, 9), round(y, 9)) for x, y, _ in boxes] == [(0, 0), (0, 1), (1, 1)]
    assert boxes[0][2] == boxes[2][2] != boxes[1][2]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["send", "recv"]


def test_equal_calls_of_all_ranks_are_one_box():
    plots.calls([[("all_reduce", 8)]] * 4)
    (axes,) = plt.gcf().axes
    assert [(text.get_position(), text.get_text()) for text in axes.texts] == [((0, 1.5), "8")]
    assert axes.patches[0].get_height() > 3
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"rank {rank}" for rank in range(4)]


def test_differences_are_shades_with_the_largest_beside_and_a_sign_where_there_is_none():
    plots.differences({"nothing": [0.0, 0.0], "moments": [0.0, -0.25]}, "step")
    (axes,) = plt.gcf().axes
    words = {text.get_position(): text.get_text() for text in axes.texts}
    assert words == {(0, 0): "=", (1, 0): "=", (1.6, 0): "0", (0, 1): "=", (1.6, 1): "0.2"}
    assert np.ma.filled(axes.images[0].get_array(), np.nan)[1, 1] == 0.25


def test_letters_say_which_operation_runs_when():
    one = schedules.one_f_one_b(2, 2)
    assert plots.letters(one, simulate(one)) == "rank 0  FF..BW.BW\nrank 1  .FBWFBW.."


def test_letters_of_a_second_chunk_are_small_and_half_as_long():
    two = schedules.zb_v(2, 3)
    first, second = plots.letters(two, simulate(two)).split("\n")
    assert first.startswith("rank 0  FFFfbwf")
    assert len(first) == len(second) == len("rank 0  ") + 2 * simulate(two).makespan


def test_a_matrix_shows_who_computes_what_and_nothing_where_nobody_does():
    nan = float("nan")
    plots.owned({"one": [[0, nan], [1, 1]], "other": [[2, nan], [nan, 2]]})
    one, other = plt.gcf().axes
    assert [one.get_title(), other.get_title()] == ["one", "other"]
    assert one.images[0].get_array().mask.tolist() == [[False, True], [False, False]]
    assert len({tuple(one.images[0].to_rgba(rank)) for rank in (0, 1, 2)}) == 3
    assert [text.get_text() for text in plt.gcf().legends[0].texts] == ["rank 0", "rank 1", "rank 2"]
    plots.owned({"one": [[3.0]]}, of="document")
    assert [text.get_text() for text in plt.gcf().legends[0].texts] == ["document 3"]


def rectangles(drawing, fill):
    return [
        tuple(float(found[1 + place]) for place in range(4))
        for found in re.finditer(
            r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" style="fill:([^"]*)"/>',
            drawing.svg,
        )
        if fill in found[5]
    ]


def test_bars_are_as_long_as_their_amounts_and_say_their_sum():
    drawing = plots.bars({"a": {"kept": 3, "sent": 1}, "b": {"kept": 1.5}}, "bytes", ("room", 2))
    kept = [wide for _, _, wide, high in rectangles(drawing, "--ar-forward") if high == 20]
    assert kept[0] == pytest.approx(2 * kept[1], abs=0.1)
    assert all(f">{words}</text>" in drawing.svg for words in ("a", "b", "4", "2", "room", "bytes"))


def test_streams_put_what_happens_at_its_time():
    drawing = plots.streams({"one": {"compute": [(0, 2, "forward", "F")], "link": [(2, 6, "idle", "")]}}, "s")
    (x, _, wide, _), (later, _, waits, _) = (
        next(each for each in rectangles(drawing, f"--ar-{fill}") if each[3] == 20)
        for fill in ("forward", "idle")
    )
    assert later == pytest.approx(x + wide + 1, abs=0.1) and waits + 1 == pytest.approx(
        2 * (wide + 1), abs=0.2
    )


def test_passes_stand_at_their_time_and_a_later_stage_of_a_rank_is_underlined():
    plain, v = (
        plots.passes({"": simulate(make(2, 1)).slots}, "units") for make in (schedules.zb_h1, schedules.zb_v)
    )
    boxes = [re.findall(r'd="M(\d+) (\d+)h(\d+)"', drawing.svg) for drawing in (plain, v)]
    (x, y, wide), (later, below, same) = [tuple(map(int, boxes[0][i])) for i in (0, 3)]  # forwards of 2 ranks
    assert wide == same and y < below and later == pytest.approx(x + wide + 10, abs=1)
    lines = [drawing.svg.count("stroke-width:30;") for drawing in (plain, v)]
    assert lines == [0, 2], "the two halves of a V are on the same ranks"
    assert ">0</text>" in plain.svg


def test_a_drawing_is_the_same_where_numbers_differ_in_their_last_bits():
    one, other = (plots.bars({"a": {"x": x, "y": 1}}, "s").svg for x in (0.1 + 0.2, 0.3))
    assert one == other and 'id="drawing-' in one


def test_streams_call_kinds_by_other_names():
    panels = {"one": {"compute": [(0, 2, "forward", ""), (2, 3, "idle", "")]}}
    drawing = plots.streams(panels, "s", {"forward": "trains"})
    assert ">trains</text>" in drawing.svg and ">idle</text>" in drawing.svg
    assert ">forward</text>" not in drawing.svg


def test_holders_fill_what_a_rank_holds_and_leave_partial_sums_hollow():
    top, none = [[1, 1], [0, 0]], [[0, 0], [0, 0]]
    drawing = plots.holders([("rows", "", [top, none]), ("", "", "all-gather"), ("sum", "", [[[0.5]], none])])
    wide, high = rectangles(drawing, "--ar-rank-0")[0][2:]
    assert wide == 2 * high
    assert "stroke:var(--ar-rank-0" in drawing.svg and ">all-gather</text>" in drawing.svg


def test_two_drawings_of_a_page_share_no_name():
    one, other = (plots.bars({"a": {"x": n, "y": 1}}, "") for n in (1, 2))
    names = [set(re.findall(r'id="([^"]+)"', drawing.svg)) for drawing in (one, other)]
    assert names[0] and not names[0] & names[1]


def test_drawn_bars_are_as_long_as_their_amounts_and_the_longest_takes_the_room():
    svg = plots.bars({"one": {"sent": 2, "kept": 2}, "two": {"sent": 1}}, "kB").svg
    drawn = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="20"', svg)
    (_, sent), (x, kept), (_, half) = [(float(x), float(width)) for x, width in drawn]
    assert sent == kept and abs(sent - 2 * half) < 0.1
    assert 400 < x + kept < 430, "only its sum stands behind the longest bar"
