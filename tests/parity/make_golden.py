#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes what Python's DataLoader does, for parity_test.cpp to compare with.

    python tests/parity/make_golden.py      # needs torch; the files in this folder are of 2.13 (CPU)

Each file holds a list of cases: what was asked for, and what came.
"""

import json
import pathlib
import warnings

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)

EPOCHS = 3
WEIGHTS = [0.1, 0.9, 0.4, 0.0, 0.7, 3.0, 0.6, 1e-9, 12.25]


def write(name, cases):
    path = pathlib.Path(__file__).parent / f"{name}.json"
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f"[\n{lines}\n]\n")
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")


def generator_of(case):
    """A generator of that seed, or None after the default one was seeded."""
    if case["own_generator"]:
        return torch.Generator().manual_seed(case["seed"])
    torch.manual_seed(case["seed"])
    return None


def make_sampler(case, generator):
    kind, size = case["sampler"], case["size"]
    if kind == "sequential":
        return SequentialSampler(range(size))
    if kind == "random":
        return RandomSampler(range(size), case["replacement"], case["num_samples"], generator)
    if kind == "subset":
        return SubsetRandomSampler(case["indices"], generator)
    if kind == "weighted":
        return WeightedRandomSampler(
            WEIGHTS, case["num_samples"], case["replacement"], generator
        )
    raise ValueError(kind)


def sampler_cases():
    yield {"sampler": "sequential", "size": 7}
    for size in (1, 2, 10, 61):
        yield {"sampler": "random", "size": size, "replacement": False, "num_samples": None}
    for size, num_samples in ((10, 3), (10, 10), (10, 23), (5, 20), (1, 4)):
        yield {"sampler": "random", "size": size, "replacement": False, "num_samples": num_samples}
    for size, num_samples in ((10, None), (10, 1), (7, 31), (7, 32), (7, 33), (1000, 40)):
        yield {"sampler": "random", "size": size, "replacement": True, "num_samples": num_samples}
    for size in (2**28 - 1, 2**28, 2**33, 2**40 + 1):
        yield {"sampler": "random", "size": size, "replacement": True, "num_samples": 40}
    for indices in ([], [3], [5, 7, 9, 11], [i * i % 101 for i in range(40)]):
        yield {"sampler": "subset", "size": 1000, "indices": indices}
    for replacement, counts in ((True, (1, 2, 5, 64)), (False, (1, 2, 5, 8))):
        for num_samples in counts:
            yield {
                "sampler": "weighted",
                "size": len(WEIGHTS),
                "replacement": replacement,
                "num_samples": num_samples,
            }


def samplers():
    for asked in sampler_cases():
        for seed in (0, 42, 2**40 + 3):
            for own in (False, True):
                case = {**asked, "seed": seed, "own_generator": own}
                sampler = make_sampler(case, generator_of(case))
                yield {**case, "epochs": [list(sampler) for _ in range(EPOCHS)]}


def distributed():
    for size in (1, 2, 10, 23):
        for replicas in (1, 3, 5):
            for options in (
                {"shuffle": False, "drop_last": False, "seed": 0},
                {"shuffle": False, "drop_last": True, "seed": 0},
                {"shuffle": True, "drop_last": False, "seed": 0},
                {"shuffle": True, "drop_last": True, "seed": 12},
            ):
                ranks = [
                    DistributedSampler(range(size), replicas, rank, **options)
                    for rank in range(replicas)
                ]
                epochs = []
                for epoch in range(EPOCHS):
                    for sampler in ranks:
                        sampler.set_epoch(epoch)
                    epochs.append([list(sampler) for sampler in ranks])
                yield {"size": size, "num_replicas": replicas, **options, "epochs": epochs}


def batch_samplers():
    for size in (0, 1, 9, 10, 33):
        for batch_size in (1, 3, 10, 40):
            for drop_last in (False, True):
                sampler = BatchSampler(range(size), batch_size, drop_last)
                yield {
                    "size": size,
                    "batch_size": batch_size,
                    "drop_last": drop_last,
                    "length": len(sampler),
                    "sizes": [len(batch) for batch in sampler],
                }


def splits():
    for size, lengths in (
        (10, [3, 7]),
        (6, [2, 4]),
        (5, [5, 0]),
        (6, [0.5, 0.5]),
        (3, [0.5, 0.5]),
        (106, [0.1, 0.2, 0.3, 0.4]),
        (10, [0.25, 0.25, 0.25, 0.25]),
        (2, [0.4, 0.3, 0.3]),
        (29, [0.29, 0.71]),
    ):
        for seed in (1, 7):
            for own in (False, True):
                case = {"size": size, "lengths": lengths, "seed": seed, "own_generator": own}
                generator = generator_of(case) or torch.default_generator
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    parts = random_split(range(size), lengths, generator)
                yield {**case, "parts": [list(part.indices) for part in parts]}


def loader_cases():
    for batch_size, drop_last in ((1, False), (4, False), (4, True)):
        for shuffle in (False, True):
            yield {"size": 10, "batch_size": batch_size, "drop_last": drop_last, "shuffle": shuffle}
    # A sampler draws after the loader has drawn its seed: from another generator, or the same one.
    for sampler in (
        {"sampler": "random", "replacement": True, "num_samples": 11},
        {"sampler": "random", "replacement": False, "num_samples": 13},
        {"sampler": "subset", "indices": [8, 6, 4, 2, 0]},
        {"sampler": "weighted", "replacement": True, "num_samples": 12},
        {"sampler": "weighted", "replacement": False, "num_samples": 6},
    ):
        yield {"size": 10, "batch_size": 4, "drop_last": False, "shuffle": False, **sampler}


def loaders():
    for asked in loader_cases():
        for num_workers in (0, 2):
            for seed in (0, 42):
                for own in (False, True):
                    case = {**asked, "num_workers": num_workers, "seed": seed, "own_generator": own}
                    generator = generator_of(case)
                    sampler = make_sampler(case, generator) if "sampler" in case else None
                    loader = DataLoader(
                        range(case["size"]),
                        batch_size=case["batch_size"],
                        shuffle=case["shuffle"],
                        sampler=sampler,
                        num_workers=num_workers,
                        drop_last=case["drop_last"],
                        generator=generator,
                    )
                    epochs = [[batch.tolist() for batch in loader] for _ in range(EPOCHS)]
                    yield {**case, "length": len(loader), "epochs": epochs}


class Samples(Dataset):
    """Five samples of one kind; parity_batches_test.cpp makes the same ones."""

    KINDS = {
        "int": lambda i: 3 * i - 4,
        "float": lambda i: i / 8 - 1,
        "bool": lambda i: i % 3 == 0,
        "string": lambda i: "s" * i,
        "tuple": lambda i: (torch.arange(6).view(2, 3) / 4 + i, i, f"name {i}"),
        "dict": lambda i: {
            "image": torch.full((2, 2), 50 * i, dtype=torch.uint8),
            "label": i - 2,
            "boxes": [
                torch.full((4,), i / 2, dtype=torch.float16),
                torch.tensor([i, -i], dtype=torch.int32),
            ],
        },
        "nested": lambda i: ((i, i / 4), {"a": [f"{i}", i], "b": (i > 2, torch.tensor(i * 1.5))}),
        "scalars": lambda i: (torch.tensor(i), torch.tensor(i > 1)),
        "empty": lambda i: torch.zeros(2, 0),
        "transposed": lambda i: (torch.arange(6).view(2, 3) + 10 * i).t(),
        "uint8": lambda i: torch.tensor([i, 255 - i], dtype=torch.uint8),
        "int8": lambda i: torch.tensor([i, -i], dtype=torch.int8),
        "int16": lambda i: torch.tensor([i, -300 * i], dtype=torch.int16),
        "int32": lambda i: torch.tensor([i, -(2**20) * i], dtype=torch.int32),
        "int64": lambda i: torch.tensor([i, -(2**40) * i], dtype=torch.int64),
        "float16": lambda i: torch.tensor([i / 4, -i], dtype=torch.float16),
        "bfloat16": lambda i: torch.tensor([i / 4, -i], dtype=torch.bfloat16),
        "float32": lambda i: torch.tensor([i / 4, -i], dtype=torch.float32),
        "float64": lambda i: torch.tensor([i / 3, -i], dtype=torch.float64),
        "complex64": lambda i: torch.tensor([complex(i, -i)], dtype=torch.complex64),
        "complex128": lambda i: torch.tensor([complex(i / 3, i)], dtype=torch.complex128),
    }

    def __init__(self, kind):
        self.make = self.KINDS[kind]

    def __getitem__(self, index):
        return self.make(index)

    def __len__(self):
        return 5


def told(batch):
    """A batch as JSON: tensors as objects, tuples and lists as arrays."""
    if isinstance(batch, torch.Tensor):
        values = torch.view_as_real(batch) if batch.is_complex() else batch
        return {
            "dtype": str(batch.dtype).removeprefix("torch."),
            "shape": list(batch.shape),
            "values": values.flatten().tolist(),
        }
    if isinstance(batch, dict):
        return {key: told(value) for key, value in batch.items()}
    if isinstance(batch, str):
        return batch
    return [told(element) for element in batch]


def batches():
    for kind in Samples.KINDS:
        loaded = {}
        for num_workers in (0, 2):
            loader = DataLoader(Samples(kind), batch_size=2, num_workers=num_workers)
            loaded[num_workers] = [told(batch) for batch in loader]
        assert loaded[0] == loaded[2], kind
        yield {"kind": kind, "batches": loaded[0]}


class Stream(IterableDataset):
    """Worker w's samples are 100 w, 100 w + 1, ..: as many as `lengths[w]` says."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __iter__(self):
        info = get_worker_info()
        worker = 0 if info is None else info.id
        return iter(range(100 * worker, 100 * worker + self.lengths[worker]))


def streams():
    for lengths in ([0], [7], [5, 5], [9, 0], [0, 9], [1, 6, 3], [4, 2, 8, 1]):
        for batch_size, drop_last in ((None, False), (1, False), (2, False), (3, False), (3, True)):
            for num_workers in (0, 1) if len(lengths) == 1 else (len(lengths),):
                loader = DataLoader(
                    Stream(lengths),
                    batch_size=batch_size,
                    num_workers=num_workers,
                    drop_last=drop_last,
                )
                batches = [torch.as_tensor(batch).reshape(-1).tolist() for batch in loader]
                assert batches == [torch.as_tensor(b).reshape(-1).tolist() for b in loader]
                yield {
                    "lengths": lengths,
                    "batch_size": batch_size,
                    "num_workers": num_workers,
                    "drop_last": drop_last,
                    "batches": batches,
                }


if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    for make in (samplers, distributed, batch_samplers, splits, loaders, batches, streams):
        write(make.__name__, list(make()))
