"""Lines of results.jsonl into bench/results/<machine>.json: the keys that were measured replace their old values.

    python3 collect.py MACHINE.json RESULTS.jsonl...
"""
import datetime
import json
import pathlib
import subprocess
import sys


def main():
    target = pathlib.Path(sys.argv[1])
    results = json.loads(target.read_text()) if target.exists() else {}
    version = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    measured = {}
    for name in sys.argv[2:]:
        for line in pathlib.Path(name).read_text().splitlines():
            record = json.loads(line)
            key = record.pop("bench")
            entry = measured.setdefault(key, {"version": version, "date": str(datetime.date.today()), "rows": []})
            if set(record) & {"us", "read_TBs", "name"}:
                entry["rows"].append(record)
            else:
                entry.update(record)  # the run's machine and libraries
    results.update(measured)
    target.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
