# SPDX-License-Identifier: BSD-3-Clause
"""Runs stoker and its rivals on the same jobs, interleaved, and prints one table in Markdown.

Needs the programs of the `bench` preset, and a Python that can import torch. A figure is the
median over the rounds; a ratio is the median of the rounds' ratios, so that what slows the machine
for a while slows both sides of it. docs/benchmarks.md says what each row measures.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rows import ALL, KEY_JOBS, LIMIT, OTHER_JOBS, OURS, PYTHON

HERE = Path(__file__).resolve().parent
TITLES = {"ours": "stoker", "torch_data": "torch::data", "python": "Python", "limit": "limit"}


def command_line():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=Path, default=HERE.parent / "build" / "bench",
                        help="where the project was built (default: build/bench)")
    parser.add_argument("--python", default=sys.executable, help="a Python that can import torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6, help="measured, per run")
    parser.add_argument("--warmup", type=float, default=0.3, help="before that")
    parser.add_argument("--all", action="store_true", help="more rows: 0, 1 and 4 workers, ...")
    parser.add_argument("--quick", action="store_true", help="a smoke run: one short round")
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--rivals", default=",".join(ALL), help="which of " + ",".join(ALL))
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    parser.add_argument("--json", type=Path, help="write every result of every round there")
    options = parser.parse_args()
    options.rivals = options.rivals.split(",")
    if options.quick:
        options.rounds, options.seconds, options.warmup = 1, 0.1, 0.1
    if options.rounds < 1 or not set(options.rivals) <= set(ALL):
        parser.error("--rounds must be at least 1, and --rivals of " + ",".join(ALL))
    return options


def rival_commands(options):
    """The command of each rival, after seeing that it is there."""
    commands = {}
    for rival in options.rivals:
        if rival == PYTHON:
            commands[rival] = [options.python, str(HERE / "python_loader.py")]
            if subprocess.run([options.python, "-c", "import torch"], check=False).returncode:
                sys.exit(f"{options.python} cannot import torch: pass --python, or leave python "
                         "out of --rivals")
            continue
        found = sorted(options.build_dir.glob(f"**/stoker_bench_{rival}"))
        if not found:
            sys.exit(f"no stoker_bench_{rival} under {options.build_dir}: build the preset "
                     "`bench` first, or pass --build-dir")
        commands[rival] = [str(found[0])]
    return commands


def run(command, timeout):
    """The JSON that a program prints, or None after saying what was wrong."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)  # a group, so that its workers end too
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        err += f"no result after {timeout} s"
    except BaseException:  # Ctrl-C reaches this process only
        os.killpg(process.pid, signal.SIGKILL)
        raise
    if process.returncode == 0:
        return json.loads(out)
    print(f"FAILED: {' '.join(command)}\n{err.strip()}", file=sys.stderr)
    return None


def measure(job, rival, command, options):
    arguments = [*command, *job.arguments(options.seconds, options.warmup)]
    result = run(arguments, options.timeout)
    if rival != LIMIT or "filled" not in job.options or result is None:
        return result
    # Which stores are faster is the machine's affair; its limit is the better of the two.
    other = run([*arguments, "--streaming-stores"], options.timeout)
    return max(result, other or {}, key=lambda each: each.get("samples_per_s", 0))


def run_all(jobs, commands, options):
    """All results: one dictionary per round and job, from rival to result."""
    results = [[] for _ in jobs]
    for round_number in range(options.rounds):
        for job, rounds in zip(jobs, results):
            rivals = [rival for rival in commands if rival in job.rivals]
            if round_number % 2:
                rivals.reverse()  # nobody always runs after the same neighbour
            print(f"round {round_number + 1}/{options.rounds}: {job.name}", file=sys.stderr)
            rounds.append({rival: measure(job, rival, commands[rival], options)
                           for rival in rivals})
    return results


def value(result, figure):
    found = (result or {}).get(figure[0])
    if isinstance(found, list):  # one per worker: the largest counts
        return max(found, default=None)
    return found


def shown(number):
    if number is None:
        return "–"
    for size, letter in ((1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e6 if letter == 'M' else 1e3):.3g} {letter}"
    return f"{number:.3g}" if number < 1000 else f"{number:.0f}"


def table_row(name, figure, rounds, rivals):
    columns = {rival: [value(each.get(rival), figure) for each in rounds] for rival in rivals}
    medians = {rival: statistics.median(known) if (known := [v for v in column if v is not None])
               else None for rival, column in columns.items()}
    cells = [f"{name}, {figure[1]}", *(shown(medians[rival]) for rival in rivals)]
    for rival in rivals:
        if rival == OURS or OURS not in rivals:
            continue
        pairs = [(o, r) for o, r in zip(columns[OURS], columns[rival]) if o and r]
        ratios = [o / r if figure[2] else r / o for o, r in pairs]
        cells.append(f"{statistics.median(ratios):.2f}" if ratios else "–")
    spreads = [(max(known) - min(known)) / statistics.median(known)
               for column in columns.values()
               if len(known := [v for v in column if v is not None]) > 1 and any(known)]
    cells.append(f"{100 * max(spreads):.0f} %" if spreads else "–")
    return cells


def table(jobs, results, rivals):
    head = ["", *(TITLES[rival] for rival in rivals)]
    if OURS in rivals:
        head += [f"× {TITLES[rival]}" for rival in rivals if rival != OURS]
    rows = [[*head, "spread"], ["---", *["---:"] * len(head)]]
    for job, rounds in zip(jobs, results):
        rows += [table_row(name, figure, rounds, rivals) for name, figure in job.figures.items()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def machine(options):
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return (f"{names[0] if names else platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
            f"Linux {platform.release()}, huge pages "
            f"{huge.read_text().strip() if huge.exists() else 'absent'}, load before "
            f"{os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d')}; "
            f"{options.rounds} rounds of {options.seconds} s")


def main():
    options = command_line()
    commands = rival_commands(options)
    jobs = [job for job in KEY_JOBS + (OTHER_JOBS if options.all else [])
            if options.only in job.name]
    about = machine(options)
    began = time.monotonic()
    results = run_all(jobs, commands, options)
    print(f"{about}, {time.monotonic() - began:.0f} s in all. Ratios: how many times better "
          "stoker is; spread: (max - min) / median of the noisiest column.\n")
    print(table(jobs, results, list(commands)))
    if options.json:
        named = [{"job": job.name, "rounds": rounds} for job, rounds in zip(jobs, results)]
        options.json.write_text(json.dumps({"machine": about, "results": named}, indent=1))
    return 1 if any(result is None for rounds in results for each in rounds
                    for result in each.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
