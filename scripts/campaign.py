#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The long campaigns, in parts that can be run one by one, stopped and resumed.

    campaign.py [PART...]     all of them, or these
    campaign.py list          what there is, its size, and how far it is

A part is cut into pieces, and what a piece said is kept in build/campaign/COMMIT/PART: run again it goes on where it was
stopped, and pieces that failed are run again. Figures and seeds go to bench/campaign.json, from where scripts/proof.py takes
them. Sizes come from the environment (see SIZES); CAMPAIGN_SEED is the first seed, without it one that nobody has run.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "campaign.json")
JOBS = int(os.environ.get("JOBS", os.cpu_count() or 2))

# What a release has to pass.
SIZES = {
    "CAMPAIGN_SEEDS": 100_000,  # runs of the simulator
    "CAMPAIGN_IMAGES": 200_000,  # disks after a crash
    "CAMPAIGN_FLIPS": 1_000_000,  # bits
    "CAMPAIGN_WORKLOADS": 20,  # of which every call of the disk fails once
    "CAMPAIGN_FAILOVERS": 200,  # of a Redis
    "CAMPAIGN_FUZZ_SECONDS": 600,  # for each fuzzer
    "CAMPAIGN_SOAK_SECONDS": 3600,  # on each engine
}


def size(name):
    return int(os.environ.get(name, SIZES[name]))


class Piece:
    """One run of a program: its name within the part, its command, what is added to the environment."""

    def __init__(self, name, command, **env):
        self.name = name
        self.command = command
        self.env = {key: str(value) for key, value in env.items()}


def shares(total, each):
    """How much each of the pieces has."""
    while total > 0:
        yield min(total, each)
        total -= each


# ---- what is built ------------------------------------------------------------------------------


def call(*command):
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def compile_in(folder, targets, *options):
    call("cmake", "-S", ".", "-B", folder, "-G", "Ninja", *options)
    call("cmake", "--build", folder, "-j", str(JOBS), "--target", *targets)


def compile_release(*targets):
    compile_in("build", targets, "-DCMAKE_BUILD_TYPE=Release")


def compile_fuzzers():
    call("scripts/fuzz.sh", "build")


def compile_tsan():
    compile_in("build/tsan", ["all"], "-DCMAKE_BUILD_TYPE=Debug", "-DMR_SANITIZE=thread")


# ---- the parts: their pieces --------------------------------------------------------------------


def harness(program, variable, total, each, seed, step):
    """Shares of a harness of the simulator. A share takes at most `step` seeds."""
    for i, share in enumerate(shares(total, each)):
        env = {variable: share, "MR_SEED": seed + i * step}
        yield Piece("%05d" % i, ["build/tests/millrace-" + program], **env)


def seeds_pieces(seed):
    return harness("sim", "MR_SEEDS", size("CAMPAIGN_SEEDS"), 1000, seed, 1000)


def images_pieces(seed):
    return harness("crash", "MR_IMAGES", size("CAMPAIGN_IMAGES"), 2000, seed, 100)


def flips_pieces(seed):
    return harness("bitrot", "MR_FLIPS", size("CAMPAIGN_FLIPS"), 5000, seed, 100)


def io_pieces(seed):
    return harness("io", "MR_WORKLOADS", size("CAMPAIGN_WORKLOADS"), 1, seed, 1)


def failover_pieces(seed):
    for i, share in enumerate(shares(size("CAMPAIGN_FAILOVERS"), 10)):
        env = {"MR_FAILOVERS": share, "MR_MOVES": share, "MR_SEED": seed + i}
        yield Piece("%05d" % i, ["build/tests/millrace-redis"], **env)


def plant_pieces(_seed):
    yield Piece("all", ["tests/integration/plants.sh"], MR_IMAGES=3000, MR_SEEDS=1000, MR_FLIPS=2000)


def fuzz_pieces(_seed):
    for name in sorted(os.listdir(os.path.join(ROOT, "tests", "fuzz"))):
        if re.fullmatch(r"fuzz_\w+\.c", name):
            seconds = size("CAMPAIGN_FUZZ_SECONDS")
            yield Piece(name[:-2], ["scripts/fuzz.sh", "run", name[:-2]], FUZZ_SECONDS=seconds, FUZZ_KEEP=1)


def soak_pieces(seed):
    seconds = size("CAMPAIGN_SOAK_SECONDS")
    build = os.path.join(ROOT, "build")
    yield Piece("embedded", ["build/tests/millrace-soak"], MR_SOAK_SECONDS=seconds, TMPDIR=build)
    for engine in ("remote", "redis"):
        yield Piece(engine, ["build/tests/accept", engine, "*_127_masters_*"], MR_SOAK_SECONDS=seconds, MR_SEED=seed,
                    MILLRACE=os.path.join(build, "millrace"), MR_SOURCE_DIR=ROOT, MR_BINARY_DIR=build)


def bare_pieces(_seed):
    yield Piece("bare", ["scripts/bare.sh"])


def tests_of(folder, labels):
    """A piece for each test of these labels."""
    command = ["ctest", "--test-dir", folder, "-N", "-L", labels]
    said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    for name in re.findall(r"^ *Test +#\d+: (\S+)$", said, re.MULTILINE):
        yield Piece(name, ["ctest", "--test-dir", folder, "-V", "-R", "^%s$" % re.escape(name)])


def alloc_pieces(_seed):
    return tests_of("build", "alloc")


def tsan_pieces(_seed):
    return tests_of("build/tsan", "sample|threads")


# ---- the parts: what they say -------------------------------------------------------------------

SIMULATED = ["millrace-sim", "millrace-crash", "millrace-bitrot", "millrace-io"]

# Of each: what builds it, its pieces, how many run at a time, and the figures: the sum of all numbers that stand before (or
# in) these words. The first one is how much was done; what names a fault must be 0.
PARTS = {
    "seeds": (lambda: compile_release(*SIMULATED), seeds_pieces, JOBS, {
        "seeds passed": r"(\d+) passed", "failed": r", (\d+) failed", "virtual hours": r"([\d.]+) virtual hours",
        "tasks": r"(\d+) tasks", "kills and power cuts": r"(\d+) (?:kills|power cuts)", "faults": r"(\d+) faults"}),
    "images": (lambda: compile_release(*SIMULATED), images_pieces, JOBS, {
        "images passed": r"(\d+) passed", "failed": r", (\d+) failed", "crash points": r"(\d+) crash points",
        "crashes during recovery": r"(\d+) crashes during recovery"}),
    "flips": (lambda: compile_release(*SIMULATED), flips_pieces, JOBS, {
        "bits flipped": r"(\d+) bits flipped", "damaged stores judged": r"(\d+) passed", "failed": r", (\d+) failed", "stores": r"(\d+) stores",
        "times refused": r"(\d+) times refused", "times served": r"(\d+) times served"}),
    "io": (lambda: compile_release(*SIMULATED), io_pieces, JOBS, {
        "failed calls passed": r"(\d+) passed", "failed": r", (\d+) failed", "workloads": r"(\d+) workloads"}),
    "alloc": (lambda: compile_release("all"), alloc_pieces, JOBS, {
        "allocations that failed": r"(\d+) allocations failed", "tests": r"\d+% tests passed, \d+ tests failed out of (\d+)",
        "failed": r"tests passed, (\d+) tests failed"}),
    "plants": (lambda: compile_release("product"), plant_pieces, 1, {
        "planted bugs": r"plants: (\d+) planted", "missed": r"planted, (\d+) missed"}),
    "failovers": (lambda: compile_release("millrace-redis"), failover_pieces, 1, {
        "failovers and moves": r", (\d+) blows", "tasks acknowledged": r"(\d+) acknowledged", "lost": r"; lost (\d+)",
        "ends that did not hold": r"ends that did not hold (\d+)", "results lost": r"results lost (\d+)"}),
    "soak": (lambda: compile_release("all"), soak_pieces, 3, {
        "tasks": r"(\d+) tasks", "runs": r"(\d+) runs", "lives and kills": r"(\d+) (?:lives|kills)",
        "stops": r"(\d+) stops", "partitions": r"(\d+) partitions"}),
    "fuzz": (compile_fuzzers, fuzz_pieces, JOBS, {
        "executions": r"stat::number_of_executed_units: (\d+)", "new inputs": r"stat::new_units_added: +(\d+)"}),
    "tsan": (compile_tsan, tsan_pieces, 2 * JOBS, {
        "tests": r"\d+% tests passed, \d+ tests failed out of (\d+)", "failed": r"tests passed, (\d+) tests failed",
        "reports": r"WARNING: ThreadSanitizer: ()"}),
    "bare": (lambda: None, bare_pieces, 1, {
        "targets passed": r"bare: make \w+ passed()", "seconds of make test": r"All passed in (\d+) s"}),
}


def number(text):
    return 1 if text == "" else float(text) if "." in text else int(text)


def figures_of(text, patterns):
    sums = {name: sum(number(found) for found in re.findall(pattern, text)) for name, pattern in patterns.items()}
    return {name: round(value, 1) for name, value in sums.items()}


# ---- running ------------------------------------------------------------------------------------


def output_of(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def commit():
    # The figures of an earlier part are no change.
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no", ":!bench/campaign.json", ":!docs/proof.md",
                        ":!tests/fuzz/corpus")
    return output_of("git", "rev-parse", "--short=12", "HEAD") + ("-changed" if changed else "")


def first_seed(folder):
    """Chosen once for a commit, so that what is resumed is the same campaign."""
    path = os.path.join(folder, "seed")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(os.environ.get("CAMPAIGN_SEED", str(int(time.time()) * 1000)))
    with open(path, encoding="utf-8") as file:
        return int(file.read())


def key_of(piece):
    """What must be the same for a piece to be the one that was run."""
    return " ".join(piece.command + ["%s=%s" % item for item in sorted(piece.env.items())])


def is_done(folder, piece):
    path = os.path.join(folder, piece.name + ".json")
    if not os.path.exists(path):
        return False
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    return result["status"] == 0 and result["key"] == key_of(piece)


def run_piece(folder, piece):
    if is_done(folder, piece):
        return True
    began = time.monotonic()
    log = os.path.join(folder, piece.name + ".log")
    with open(log, "w", encoding="utf-8") as file:
        env = {**os.environ, **piece.env, "JOBS": str(JOBS)}
        run = subprocess.run(piece.command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=file,
                             stderr=subprocess.STDOUT, check=False)
    result = {"status": run.returncode, "seconds": round(time.monotonic() - began), "key": key_of(piece)}
    with open(os.path.join(folder, piece.name + ".json"), "w", encoding="utf-8") as file:
        json.dump(result, file)
    if run.returncode != 0:
        print("campaign: %s failed, see %s" % (key_of(piece), os.path.relpath(log, ROOT)), flush=True)
    return run.returncode == 0


def result_of(folder, pieces, patterns, seed):
    text, seconds, passed = "", 0, 0
    for piece in pieces:
        path = os.path.join(folder, piece.name)
        if not os.path.exists(path + ".json"):
            continue
        with open(path + ".log", encoding="utf-8", errors="replace") as file:
            text += file.read()
        with open(path + ".json", encoding="utf-8") as file:
            result = json.load(file)
        seconds += result["seconds"]
        passed += result["status"] == 0
    return {"commit": commit(), "date": time.strftime("%Y-%m-%d"), "first_seed": seed, "pieces": len(pieces),
            "pieces_passed": passed, "seconds": seconds, "figures": figures_of(text, patterns)}


def publish(part, result):
    results = {}
    if os.path.exists(RESULTS):
        with open(RESULTS, encoding="utf-8") as file:
            results = json.load(file)
    results[part] = result
    with open(RESULTS, "w", encoding="utf-8") as file:
        json.dump(dict(sorted(results.items())), file, indent=2)
        file.write("\n")
    call("scripts/proof.py")


def run_part(part):
    build, pieces_of, beside, patterns = PARTS[part]
    top = os.path.join(ROOT, "build", "campaign", commit())
    folder = os.path.join(top, part)
    seed = first_seed(top)
    os.makedirs(folder, exist_ok=True)
    print("== %s" % part, flush=True)
    build()
    pieces = list(pieces_of(seed))
    with concurrent.futures.ThreadPoolExecutor(beside) as pool:
        passed = list(pool.map(lambda piece: run_piece(folder, piece), pieces))
    result = result_of(folder, pieces, patterns, seed)
    publish(part, result)
    print("== %s: %d of %d pieces passed; %s" % (part, sum(passed), len(pieces), json.dumps(result["figures"])), flush=True)
    return all(passed) and len(pieces) > 0


def show():
    for name in SIZES:
        print("%-24s %d" % (name, size(name)))
    top = os.path.join(ROOT, "build", "campaign", commit())
    for part in PARTS:
        folder = os.path.join(top, part)
        done = [name for name in os.listdir(folder) if name.endswith(".json")] if os.path.isdir(folder) else []
        print("%-24s %d pieces were run" % (part, len(done)))


def main(arguments):
    parts = arguments or list(PARTS)
    if parts == ["list"]:
        show()
        return 0
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        print("campaign: no part %s; there are %s" % (", ".join(unknown), ", ".join(PARTS)), file=sys.stderr)
        return 2
    failed = [part for part in parts if not run_part(part)]
    print("campaign: %s" % ("failed: " + ", ".join(failed) if failed else "all passed"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
