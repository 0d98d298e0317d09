"""The ten mixed problems at the end of the part on practice."""

from allranks import claims, failures, memory, profiles
from allranks.check import exercise
from allranks.check.answers import all_of, chosen, near
from allranks.check.debugging import room

MINUTE = 60
# Losses of the run in the chapter on checkpoints, after step 8: as it was lost, and resumed without a part of
# its state. Four gloo ranks, torch 2.13.0.
LOST = 2.674984, 2.636163, 2.520189, 2.460272
RESUMED = 2.674984, 2.716767, 2.669946, 2.659760


def dump():
    """The dumps of four ranks that wait, as `hang.read` returns them."""
    return room(4)


def trace():
    """A merged trace of four ranks, two steps, as `profiles.aligned` returns it."""
    return profiles.example("no overlap")


def printed(id):
    """The number that a paper printed, from the ledger."""
    return float(claims.find(id).printed.replace(",", ""))


@exercise
def plan(answer):
    """(minutes between two checkpoints, share of the time that trains) of a run on 512 GPUs."""
    minutes, share = all_of(answer, 2, "minutes, share")
    write, waits = 90, 8 * MINUTE
    mean = failures.between(64, failures.RATES["Llama 3 405B"])
    best = failures.best(write, mean)
    of_gpus = failures.between(512, failures.RATES["Llama 3 405B"])
    near(
        minutes,
        best / MINUTE,
        {
            failures.best(write, of_gpus) / MINUTE: "512 GPUs are 64 machines, and the rate is of machines.",
            best: "That is in seconds; give minutes.",
            failures.best(1.5, mean) / MINUTE: "Use seconds for all times, the mean time too.",
            failures.best(write, failures.between(64, failures.RATES["RSC-1"]))
            / MINUTE: "That is RSC-1's rate. The run fails as Llama 3's did.",
        },
    )
    right = failures.goodput(best, write, mean, waits)
    slips = {
        1 - right: "That is the share that is lost; give what trains.",
        100 * right: "Give a share between 0 and 1.",
    }
    assert abs(share - failures.goodput(best, write, mean)) > 2e-4, "A failure also costs eight minutes."
    for value, hint in slips.items():
        assert abs(share - value) > 0.01 * value, hint
    assert abs(share - right) < 1e-3, (
        f"{share:g} is not right: call `failures.goodput` with all times in seconds."
    )
    return f"A checkpoint every {best / MINUTE:.0f} minutes; {right:.1%} of the time goes into training."


@exercise
def resume(answer):
    """GPU-hours that a failure costs on average, with checkpoints that are written in the background."""
    gpus, interval, behind, waits = 4096, 30, 12, 8
    right = gpus * (interval / 2 + behind + waits) / 60
    near(
        answer,
        right,
        {
            gpus
            * (interval / 2 + waits)
            / 60: "While a checkpoint is being written, only the one before it can be loaded.",
            gpus
            * (interval + behind + waits)
            / 60: "On average a failure comes in the middle of an interval.",
            gpus
            * (interval / 2 + behind / 2 + waits)
            / 60: "A checkpoint is 12 minutes old when it can first be loaded, whenever that is.",
            gpus * (interval / 2 + behind) / 60: (
                "That leaves out the restart, for which all GPUs wait eight minutes."
            ),
            right / gpus: "Those are hours; each of 4,096 GPUs loses them.",
            right * 60: "That is in GPU-minutes; give GPU-hours.",
        },
    )
    return f"{right:,.0f} GPU-hours: 15 minutes of an interval, 12 of writing and 8 of waiting."


@exercise
def slowest_restart(answer):
    """Minutes that noticing and restarting may take if 92 % of Llama 3's time shall train."""
    run = failures.REPORTED["Llama 3 405B"]
    mean = failures.between(run.machines, run.rate)
    best = failures.best(10, mean)
    right = failures.restart_for(0.92, best, 10, mean) / MINUTE
    near(
        answer,
        right,
        {
            0.08 * mean / MINUTE: "That leaves out checkpoints and repeated steps.",
            right * MINUTE: "That is in seconds; give minutes.",
            failures.restart_for(0.92, failures.best(30, mean), 30, mean)
            / MINUTE: "That is for checkpoints of 30 s; these take 10.",
        },
    )
    return (
        f"{right:.1f} minutes: checkpoints of 10 s already cost {1 - failures.goodput(best, 10, mean):.1%}."
    )


@exercise
def loading(answer):
    """Seconds until eight data-parallel replicas of a 70-billion-parameter model have loaded a checkpoint."""
    recipe = memory.RECIPES["zero-16"]
    nbytes = 70e9 * (recipe.bytes_per_parameter - recipe.gradients)
    right = 8 * nbytes / 20e9
    near(
        answer,
        right,
        {
            nbytes / 20e9: "Every replica needs all of the states, and reads them itself.",
            64 * nbytes / 20e9: "The eight ranks of a replica share one copy.",
            8 * 70e9 * recipe.bytes_per_parameter / 20e9: "Gradients are not in a checkpoint.",
            8 * 2 * 70e9 / 20e9: "Adam's states are in it as well.",
        },
    )
    return f"{right:.0f} s: eight times {nbytes / 1e9:.0f} GB. One replica could read and then broadcast."


@exercise
def waiting(answer):
    """Why the four ranks of `dump` wait."""
    chosen(
        answer,
        "D",
        {
            "A": "Rank 3 has not run out of batches: it entered line 6 once more, to keep training.",
            "B": "Line 10 is in every rank's list under the same sequence numbers.",
            "C": "Compare operations before shapes: all_gather and all_reduce are two different calls.",
            "E": "The dump has one group, that of all ranks.",
        },
    )
    return "Six collectives are alike. At the seventh, three ranks save while rank 3 keeps training."


@exercise
def slow_step(answer):
    """Why the steps of `trace` take about 50 % longer than they should."""
    chosen(
        answer,
        "C",
        {
            "A": "The ranks compute for about as long: none has 50 % more work than another.",
            "B": "Then most of the time would be neither computing nor communicating.",
            "D": "The three collectives are one barrier and, in each of the two steps, one large all-reduce.",
            "E": "Then each step would have many all-reduces with gaps between them; here it has one.",
        },
    )
    return "Every second of communication is exposed: the all-reduces begin when backward is over."


@exercise
def after_resume(answer):
    """What was missing from the checkpoint if the losses after the resume are `RESUMED`."""
    chosen(
        answer,
        "B",
        {
            "A": "Without moments, Adam still moves every weight in the first step.",
            "C": "Other dropout masks and noise would change the first loss.",
            "D": "With another step number the learning rate is wrong, but the weights still move.",
            "E": "Other pictures would change the first loss.",
        },
    )
    return "A new scaler begins too high: gradients overflow, and the first steps are skipped."


@exercise
def on_nccl(answer):
    """Why two stages exchange wrong tensors on NCCL."""
    chosen(
        answer,
        "A",
        {
            "B": "A late receive waits; it does not get another message.",
            "C": "Then the other rank would wait, and nothing would be exchanged.",
            "D": "Reading too early gives old or half-written numbers, not the other tensor in full.",
            "E": "Both tensors are on the same link between the same two ranks.",
        },
    )
    return "NCCL has no tags: messages between two ranks arrive in the order in which they were sent."


@exercise
def one_rate(answer):
    """Minutes between two failures of 16,384 GPUs, if they failed as often as RSC-1's jobs of 1024 GPUs."""
    measured, projected = printed("rsc1-mttf-1024"), printed("rsc1-mttf-16384")
    right = measured / 16 * 60
    near(
        answer,
        right,
        {
            projected * 60: (
                "That is what the paper prints, from the rate of 6.50 in a thousand machine-days."
            ),
            measured * 60: "16 times as many GPUs fail 16 times as often.",
            right / 60: "Those are hours.",
            measured / 4 * 60: "The mean time falls with the GPUs, not with their square root.",
        },
    )
    rate = 1000 * 24 / (measured * 128)
    return (
        f"{right:.0f} minutes, but the paper prints {projected * 60:.0f}: 7.9 h means {rate:.0f} "
        "failures in a thousand machine-days, not 6.50."
    )


@exercise
def several_weeks(answer):
    """Days that MegaScale's run must have lasted at least, if all that is printed is true."""
    restarts, detect, again = (printed(f"megascale-{each}") for each in ("restarts", "detect", "catch-up"))
    days = restarts * (detect + again) / 60 / 24
    right = days / 0.1
    near(
        answer,
        right,
        {
            days / 0.9: "That allows nine tenths to be lost; only one tenth may be.",
            days: "That is what the failures cost in all. What share of the run may that be?",
            restarts * again / 60 / 24 / 0.1: (
                "That leaves out detection: a failure has to be found before a run can catch up."
            ),
            restarts * detect / 60 / 24 / 0.1: "That leaves out the 15 minutes that are trained again.",
            days * 9: "The share is of all the time, not of the time spent training.",
            right * 24: "Those are hours.",
        },
    )
    return f"{right:.1f} days: “several weeks” agrees with it, if writing checkpoints costs next to nothing."
