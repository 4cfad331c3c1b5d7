"""The command line: python3 -m training COMMAND."""

import argparse
import importlib

COMMANDS = {
    "tokenizer": "train the vocabulary of the demo model",
    "train": "train one trunk with the weights of several mechanisms",
    "adapt": "train the weights of one mechanism for a checkpoint",
    "evaluate": "measure perplexity, multiple choice and retrieval by mechanism",
    "listops": "train and test a small classifier of ListOps with one mechanism",
    "export": "write a checkpoint of train as a model folder with a bundle",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m training", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        module = importlib.import_module(f".{name}", __package__)
        command = commands.add_parser(
            name, help=text, description=module.__doc__, epilog=module.EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_arguments(command)
        command.set_defaults(run=module.main)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
