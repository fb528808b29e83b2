#!/usr/bin/env python3
"""Each contract's tests pass, and fail when the mutation that breaks the contract is switched on.

  contracts.py MUTATION_H CONTRACTS_MD BINARY...    every claim below; the page must name each mutation beside its contract,
                                                    and no contract may be without a claim; faults.md beside it likewise
                                                    names the mutations of its faults
"""
import os
import pathlib
import re
import subprocess
import sys

# Contract, mutation (two where harm needs both), tests (a GoogleTest filter). World's own mutations are in kv_mutation_test, the engine's in
# mutation_test; here are the tests that stand beside the code.
CLAIMS = [
    ("PAD-1", "kNullBlockIsGivenOut", "BlockPool*"),
    ("PAD-2", "kSlotWithoutNullTest", "Slot.*"),
    ("PAD-3", "kStageOnlyLiveRows", "StepInputsTest.WritesTheWholeExtent*"),
    ("PAD-3", "kReleaseWithoutChange", "PrepareKinds.AMovedOrRemovedRow*"),
    ("PAD-4", "kZeroFilledSlots", "PrepareKinds.DummyTables*"),
    ("PAD-4", "kDummySkipsStaging", "StepInputsTest.AStepWithoutRows*"),
    ("PAD-5", "kEmptyRowsUnwritten", "*Attention*"),
    ("PAD-6", "kCountPaddedAsValid", "StepInputsTest.StagesWhatThePlanSays"),
    ("PAD-7", "kReadsWholeBlocks", "*TinyPadding.UnownedBytesAreNan*"),
    ("PAD-8", "kSlotWithoutNullTest+kCountPaddedAsValid", "*TinyPadding.TheNullBlockStaysZero*"),
    ("PAD-9a", "kReadsWholeBlocks", "*TinyPadding.EveryPaddedSize*:*TinyPadding.DummySteps*:*Attention*"),
    ("PAD-9b", "kRandomByPlace", "*TinyPadding.AloneOrAllAtOnce*"),
    ("PAD-10", "kNoSequenceCheck", "RecordedGraph.AReplayThatWasNotStaged*"),
    ("KV-1", "kHitsTakenLate", "Prefix.HitsOfEveryGroup*"),
    ("KV-2", "kWindowByScheduled", "CacheWorld.*"),
    ("KV-2", "kReleaseWithoutFence", "CacheManager.BlocksInFlight*"),
    ("KV-3", "kHitWithoutTokens", "Prefix.*"),
    ("KV-3", "kPublishAtSchedule", "Prefix.*"),
    ("KV-4", "kNoZeroing", "CacheManager.NewBlocksAreZeroed*"),
    ("KV-5", "kDenseStride", "Slot.OffsetsFollowTheStride"),
    ("KV-6", "kSharedBlockIsWritten", "CacheWorld.*"),
    ("RING-1", "kRingWithoutKeepRule", "SlotKinds.*"),
    ("RING-2", "kHitInsideRing", "Prefix.*"),
    ("STATE-1", "kOneStatePerRow", "PrepareKinds.EveryTokenHas*"),
    ("XFER-1", "kPinsDroppedEarly", "CacheManager.ALeaseThatExpires*"),
    ("XFER-1", "kFailedLoadIsTaken", "CacheWorld.*"),
    ("HOST-1", "kStagingSlotReused", "StepInputsDeathTest.ASlotWhoseResults*"),
    ("ENG-1", "kNanIsAToken", "SchedulerTest.ARequestWhoseLogitsAreNan*"),
    ("ENG-2", "kFinishKeepsRow", "SchedulerTest.ACancelledRequest*"),
    ("ENG-3", "kPlansForgetCapacity", "*SteadyAllocation.NoneInDecodeSteps*"),
]


def mutations(header):
    body = re.search(r"enum class Mutation[^{]*{(.*?)};", pathlib.Path(header).read_text(), re.S).group(1)
    return re.findall(r"^\s*(k\w+),", body, re.M)


def faults_not_listed(header, faults_md):
    """A mutation that cites faults stands in their rows of the catalogue."""
    rows = dict(re.findall(r"^\| (F\d\d) \|(.*)", pathlib.Path(faults_md).read_text(), re.M))
    cited = [(name, fault) for name, note in re.findall(r"(k\w+),\s+//([^:\n]*):", pathlib.Path(header).read_text())
             for fault in re.findall(r"F\d\d", note)]
    return [f"{fault}: faults.md does not name {name}" for name, fault in cited if name not in rows.get(fault, "")]


def run(binary, tests, bits=0):
    env = {**os.environ, "BLOCKZERO_MUTATIONS": str(bits)}
    done = subprocess.run([binary, f"--gtest_filter={tests}"], env=env, capture_output=True, text=True, timeout=280, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    names = mutations(sys.argv[1])
    page = pathlib.Path(sys.argv[2]).read_text()
    contracts = re.findall(r"^- \*\*([\w-]+)\*\*", page, re.M)
    broken = faults_not_listed(sys.argv[1], pathlib.Path(sys.argv[2]).with_name("faults.md"))
    broken += [f"{c}: no claim" for c in contracts if c not in {claim[0] for claim in CLAIMS}]
    for contract, mutation, tests in CLAIMS:
        parts = mutation.split("+")
        rows = [line for line in page.splitlines() if line.startswith("|") and re.search(rf"\b{contract}\b", line)]
        if not any(all(part in row for part in parts) for row in rows):
            broken.append(f"{contract}: the page does not name {mutation}")
        for binary in sys.argv[3:]:
            listed = subprocess.run([binary, f"--gtest_filter={tests}", "--gtest_list_tests"], capture_output=True, text=True,
                                    check=True).stdout
            if "  " in listed:
                break
        else:
            broken.append(f"{contract}: no test {tests}")
            continue
        code, output = run(binary, tests)
        if code != 0:
            broken.append(f"{contract}: {tests} fail without a mutation:\n{output[-2000:]}")
        if run(binary, tests, sum(1 << names.index(part) for part in parts))[0] == 0:
            broken.append(f"{contract}: {tests} pass with {mutation}")
        print(f"{contract:8} {mutation:40} {tests}", flush=True)
    print("\n".join(broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
