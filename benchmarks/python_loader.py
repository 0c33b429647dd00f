# SPDX-License-Identifier: BSD-3-Clause
"""Python's torch.utils.data.DataLoader: one measurement, printed as one line of JSON.

Takes the same options as the C++ rivals and measures the same things in the same places.
"""

import argparse
import ctypes
import json
import os
import resource
import statistics
import sys
import time

PR_SET_THP_DISABLE = 41


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", choices=["stored", "tensors", "filled"],
                        default="stored")
    parser.add_argument("--get", choices=["view", "select"], default="view",
                        help="ignored: in Python data[i] is the way")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=16, help="floats in a stored sample")
    parser.add_argument("--epoch-samples", type=int, default=0, help="samples in an epoch; 0: all")
    parser.add_argument("--sleep-ms", type=float, default=0)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--fork-each-epoch", action="store_true", help="workers do not persist")
    parser.add_argument("--consumer", choices=["take", "copy"], default="take")
    parser.add_argument("--warmup", type=float, default=0.3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--min-epochs", type=int, default=0)
    parser.add_argument("--meter-consumer", action="store_true",
                        help="leave the consumer's own CPU time out of the main process's")
    parser.add_argument("--no-huge-pages", action="store_true", help="all memory in 4 KB pages")
    job = parser.parse_args()
    job.epoch_samples = job.epoch_samples or job.samples
    if job.epoch_samples > job.samples or (job.shuffle and job.epoch_samples != job.samples):
        parser.error("--epoch-samples must be all samples if shuffled, and no more")
    if job.no_huge_pages and ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_THP_DISABLE) failed")
    return job


job = arguments()

import torch  # noqa: E402  (after the huge pages were switched off, and not for --help)
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402


class StoredSamples:
    """Rows of floats in memory; all floats and the label of a sample are its index."""

    def __init__(self, samples, width, sleep_ms):
        self.labels = torch.arange(samples)
        self.data = self.labels.float().unsqueeze(1).expand(samples, width).contiguous()
        self.sleep = sleep_ms / 1e3

    def __getitem__(self, index):
        if self.sleep:
            time.sleep(self.sleep)
        return self.data[index], self.labels[index]

    def __len__(self):
        return len(self.labels)


class FilledImages:
    """float[3,224,224], made from the index."""

    def __init__(self, samples):
        self.samples = samples

    def __getitem__(self, index):
        return torch.full((3, 224, 224), float(index)), index

    def __len__(self):
        return self.samples


class Meter:
    """As Meter in measure.cpp."""

    def __init__(self):
        self.copies = None
        self.first_batch = self.last = self.window = None
        self.gaps = []
        self.epoch_labels = []
        self.samples = self.batches = self.epochs = 0
        self.consumer_cpu = 0.0
        self.begun = self.enough = False

    def take(self, data, labels):
        received = time.perf_counter()
        if self.first_batch is None:
            self.first_batch = received
        elif self.begun:
            self.gaps.append(received - self.last)
        self.begun = False
        cpu_before = time.thread_time()
        self.consume(data, labels)
        self.consumer_cpu += time.thread_time() - cpu_before
        self.samples += len(labels)
        self.batches += 1
        self.last = time.perf_counter()
        if self.window is None and self.last - self.first_batch >= job.warmup:
            self.window = self.reading()
        self.update_enough()

    def consume(self, data, labels):
        if job.consumer == "copy":
            if self.copies is None:
                self.copies = torch.empty_like(data), torch.empty_like(labels)
            data = self.copies[0][: len(data)].copy_(data)
            labels = self.copies[1][: len(labels)].copy_(labels)
        rows = data.flatten(1)
        expected = labels.float()
        if not (torch.equal(rows[:, 0], expected) and torch.equal(rows[:, -1], expected)):
            raise RuntimeError("wrong data: the floats of a sample are not its own")
        self.epoch_labels.append(labels.clone())

    def end_epoch(self):
        if self.enough:
            return  # it was left in the middle
        if not torch.equal(torch.cat(self.epoch_labels).sort().values,
                           torch.arange(job.epoch_samples)):
            raise RuntimeError("wrong data: not every sample came exactly once")
        self.epoch_labels.clear()
        self.epochs += 1
        self.begun = True
        self.update_enough()

    def update_enough(self):
        self.enough = (self.window is not None and self.epochs >= job.min_epochs
                       and self.last - self.window["time"] >= job.seconds)
        if self.enough:
            self.closed = self.reading()

    def reading(self):
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu = usage.ru_utime + usage.ru_stime - (self.consumer_cpu if job.meter_consumer else 0)
        return {"time": self.last, "cpu": cpu, "samples": self.samples, "batches": self.batches}

    def result(self, constructed):
        result = {"first_batch_ms": 1e3 * (self.first_batch - constructed),
                  "epochs": self.epochs, "batches": self.batches}
        if self.gaps:
            result["gap_ms"] = 1e3 * statistics.median(self.gaps)
        passed = {key: self.closed[key] - self.window[key] for key in self.closed}
        if passed["batches"]:
            result["samples_per_s"] = passed["samples"] / passed["time"]
            result["main_cpu_us_per_batch"] = 1e6 * passed["cpu"] / passed["batches"]
        return result


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:  # it ended meanwhile
        return None


def private_dirty_kb(pid):
    total, private = 0, False
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            words = line.split()
            if "-" in words[0] and len(words) > 1 and len(words[1]) == 4:
                private = words[1].endswith("p")
            elif private and words[0] == "Private_Dirty:":
                total += int(words[1])
    return total


def worker_private_kb():
    """As in process_memory.h."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [private_dirty_kb(pid) for pid in pids if parent_of(pid) == os.getpid()]


def main():
    torch.set_num_threads(1)
    if job.dataset == "filled":
        dataset = FilledImages(job.samples)
    else:
        dataset = StoredSamples(job.samples, job.width, job.sleep_ms)
    if job.dataset == "tensors":
        dataset = TensorDataset(dataset.data, dataset.labels)
    options = {}
    if job.workers:
        options = {"persistent_workers": not job.fork_each_epoch, "multiprocessing_context": "fork"}
    if job.epoch_samples != job.samples:
        options["sampler"] = range(job.epoch_samples)
    meter = Meter()
    constructed = time.perf_counter()
    loader = DataLoader(dataset, batch_size=job.batch_size, shuffle=job.shuffle,
                        num_workers=job.workers, **options)
    while not meter.enough:
        batches = iter(loader)  # in a variable: the workers live until their memory was read
        for data, labels in batches:
            meter.take(data, labels)
            if meter.enough:
                break
        meter.end_epoch()
    result = meter.result(constructed)
    result["worker_private_kb"] = worker_private_kb()
    result["rival"] = "python"
    print(json.dumps(result))


main()
