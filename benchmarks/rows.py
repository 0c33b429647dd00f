# SPDX-License-Identifier: BSD-3-Clause
"""What the table has: the jobs, and which figure of each becomes a row."""

from dataclasses import dataclass, field

OURS, TORCH_DATA, PYTHON, LIMIT = "ours", "torch_data", "python", "limit"
ALL = (OURS, TORCH_DATA, PYTHON, LIMIT)

TINY = ["--dataset", "stored", "--samples", "100000", "--width", "16", "--shuffle"]
ROWS = ["--dataset", "tensors", "--samples", "100000", "--width", "128", "--batch-size", "256",
        "--shuffle"]
TENSOR = ["--dataset", "filled", "--samples", "4096"]
# 16 KB a sample; an epoch is short in both, so that only the memory differs.
STARTUP = ["--dataset", "stored", "--width", "4096", "--epoch-samples", "1024", "--no-huge-pages"]
SMALL = [*STARTUP, "--samples", "1024"]
GIGABYTE = [*STARTUP, "--samples", "65536"]
SLOW = ["--dataset", "stored", "--samples", "320", "--batch-size", "32", "--sleep-ms", "5"]

# A figure: its name in the programs' JSON, its unit, and whether more of it is better.
RATE = ("samples_per_s", "samples/s", True)
FIRST_BATCH = ("first_batch_ms", "ms", False)
GAP = ("gap_ms", "ms", False)
MEMORY = ("worker_private_kb", "KB", False)
MAIN_CPU = ("main_cpu_us_per_batch", "µs", False)


@dataclass
class Job:
    """One measurement that every rival makes in every round; it gives one row per figure."""

    name: str
    options: list
    figures: dict  # row name -> figure
    rivals: tuple = ALL
    timed: bool = True  # has a window of time, whose length the command line decides
    extra: list = field(default_factory=list)

    def arguments(self, seconds, warmup):
        window = ["--seconds", str(seconds), "--warmup", str(warmup)] if self.timed else []
        return [*self.options, *self.extra, *window]


def rate(name, options, workers, consumer="take", rivals=ALL):
    how = "" if consumer == "take" else ", copied"
    label = f"{name}, {workers} workers{how}"
    return Job(label, [*options, "--workers", str(workers), "--consumer", consumer], {label: RATE},
               rivals)


def startup(name, options, workers, rivals=ALL, extra=()):
    window = ["--warmup", "0", "--seconds", "0.2"]
    label = f"{name}, {workers} workers"
    return Job(label, [*options, "--workers", str(workers), *window],
               {f"{label}: first batch": FIRST_BATCH, f"{label}: gap between epochs": GAP},
               rivals, timed=False, extra=list(extra))


def first_batch(name, options, workers):
    label = f"{name}, {workers} workers: first batch"
    return Job(label, [*options, "--workers", str(workers), "--warmup", "0", "--seconds", "0"],
               {label: FIRST_BATCH}, timed=False)


def memory(name, options, workers):
    label = f"{name}, {workers} workers: private memory of a worker"
    window = ["--warmup", "0", "--seconds", "0", "--min-epochs", "1"]
    return Job(label, [*options, "--workers", str(workers), *window], {label: MEMORY},
               (OURS, PYTHON, LIMIT), timed=False)


def main_cpu(name, options, workers):
    label = f"{name}, {workers} workers: main process's CPU per batch"
    return Job(label, [*options, "--workers", str(workers), "--meter-consumer"],
               {label: MAIN_CPU}, (OURS, PYTHON))


KEY_JOBS = [
    rate("tiny", TINY, 0),
    rate("tiny", TINY, 2),
    rate("tiny", TINY, 2, "copy"),
    *[rate("TensorDataset", ROWS, workers, rivals=(OURS, PYTHON, LIMIT)) for workers in (0, 2)],
    rate("tensor", TENSOR, 2),
    rate("tensor", TENSOR, 2, "copy"),
    startup("startup small", SMALL, 4),
    startup("startup 1 GB", GIGABYTE, 4),
    first_batch("5 ms a sample", SLOW, 1),
    first_batch("5 ms a sample", SLOW, 4),
    memory("tiny", TINY, 2),
    main_cpu("64 B a sample", TINY, 2),
    # At about the rate of the 600 KB ones: a main process that sleeps between batches works with
    # cold caches, whatever their size.
    main_cpu("64 B a sample, sleeping 20 µs", [*TINY, "--sleep-ms", "0.02"], 2),
    main_cpu("600 KB a sample", TENSOR, 2),
]

OTHER_JOBS = [
    rate("tiny", TINY, 0, "copy"),
    *[rate("tiny", TINY, workers, consumer) for workers in (1, 4) for consumer in ("take", "copy")],
    rate("tiny, get = data[i]", [*TINY, "--get", "select"], 2),
    *[rate("TensorDataset", ROWS, workers, rivals=(OURS, PYTHON, LIMIT)) for workers in (1, 4)],
    *[rate("tensor", TENSOR, workers, consumer)
      for workers in (0, 1, 4) for consumer in ("take", "copy")],
    startup("startup small", SMALL, 1),
    startup("startup 1 GB", GIGABYTE, 1),
    startup("startup 1 GB, forked each epoch", GIGABYTE, 4, (OURS, PYTHON), ["--fork-each-epoch"]),
]
