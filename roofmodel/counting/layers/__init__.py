"""The operators of each kind of layer: attention, linear attention, state spaces, convolutions, MLPs and MoE."""
