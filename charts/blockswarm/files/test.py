"""What `helm test` runs: the directory answers, and text comes through the swarm where a model is named.

The words after the program are the command that generates; without any, no text is asked for.
"""

import asyncio
import subprocess
import sys

from blockswarm.discovery.directory import DirectoryDiscovery


async def models() -> list[str]:
    discovery = DirectoryDiscovery()
    try:
        return [f"{model.name}, {model.num_blocks} blocks" for model in await discovery.models()]
    finally:
        await discovery.close()


def main(command: list[str]) -> int:
    served = asyncio.run(models())
    print("the directory answers; it knows", "; ".join(served) or "no model yet", flush=True)
    if not command:
        print("no text was generated: set test.model to a model of the swarm", flush=True)
        return 0
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print(answer.stdout, flush=True)
    if answer.returncode == 0 and not answer.stdout.strip():
        print("no text came", file=sys.stderr)
        return 1
    return answer.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
