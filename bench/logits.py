"""Reads what `lowkey logits` writes."""

import json
import struct

import numpy as np


def read_log_probabilities(path, rows=slice(None)):
    """Returns the logarithms of probabilities [rows, vocabulary] of a file's rows of logits."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))["logits"]
        logits = np.fromfile(file, "<f4").reshape(header["shape"])[rows].astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
