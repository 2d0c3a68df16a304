"""Summarize a network for MNIST, as a lecture does: layers, shapes, parameters.

python examples/mnist_summary.py
roof count examples/mnist_summary.py:Net --input 1x1x28x28 --hw v100
roof count examples/mnist_summary.py:Net --input 1x1x28x28 --dtype fp32 --summary
"""

from __future__ import annotations

import rich
import torch
from torch import nn
from torch.nn import functional

import roofmodel


class Net(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(functional.max_pool2d(self.conv1(x), 2))
        x = functional.relu(functional.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = functional.relu(self.fc1(x.view(-1, 320)))
        x = functional.dropout(x, training=self.training)
        return functional.log_softmax(self.fc2(x), dim=1)


if __name__ == "__main__":
    rich.print(roofmodel.count(f"{__file__}:Net", ["1x1x28x28"], dtype="fp32").summary())
