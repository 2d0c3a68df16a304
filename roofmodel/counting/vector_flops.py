"""Vector FLOPs per element of all work that is not a contraction: softmax, norms, activations, rotary embedding, ...

Convention: each addition, subtraction, multiplication, division, comparison and elementary function (exp, tanh, erf,
rsqrt) counts as 1 FLOP. Hardware takes several instructions for some of them. These operators are memory-bound by a
wide margin, so the convention does not change which ceiling limits them. Work once per row (the division of a mean,
one rsqrt) is not counted.
"""

from __future__ import annotations


class FlopCount(int):
    """A number of FLOPs per element, with the operations that it counts and their source (`operations`)."""

    operations: str

    def __new__(cls, flops: int, operations: str = "") -> FlopCount:
        """`flops` as an int that carries its explanation."""
        count = super().__new__(cls, flops)
        count.operations = operations
        return count


ADD = FlopCount(1)

SCALE = FlopCount(1, "q k^T / sqrt(h)")
MASK = FlopCount(1, "add the mask, where it is a matrix")
SOFTMAX = FlopCount(5, "running max 1, subtract it 1, exp 1, sum 1, divide 1")
SOFTMAX_GRADIENT = FlopCount(
    5, "p (g - sum(p g)) for the gradient g of p: multiply 1, sum 1, subtract 1, multiply 1; scale 1"
)
MAX = FlopCount(1, "maximum over the keys of a block: one comparison per key")
CHOOSE = FlopCount(1, "top-k: at least one comparison per element")

ROTARY = FlopCount(3, "x cos + rotate(x) sin: 2 multiplications, 1 addition (RoFormer, arXiv 2104.09864, eq. 34)")
UNIT_LENGTH = FlopCount(3, "square 1, sum 1, multiply by the inverse root 1")

STEP = FlopCount(
    4, "time step of a state-space model: add the bias 1, softplus log(1 + exp(x)) 3 (Mamba, arXiv 2312.00752, alg. 2)"
)
DISCRETIZE = FlopCount(
    3,
    "per element of the state: step times A 1, exp 1, (step x) times B 1 (Mamba, arXiv 2312.00752, eq. 4; B simplified "
    "as in its code)",
)

GATE = FlopCount(3, "gate of attention heads: sigmoid 3, or softplus log(1 + exp(x)) 3")

THRESHOLD = FlopCount(
    6,
    "what exceeds a threshold: mean 1, subtract it 1, square 1, sum 1; subtract the threshold 1, max(x, 0) 1 "
    "(Gemma3nTextMLP of transformers)",
)

# By what the backward pass reads of the forward pass (`Operator.keeps`).
BACKWARD_FACTOR = {
    "inputs": FlopCount(2, "times the forward FLOPs: each operation's derivative, multiplied by the gradient"),
    "outputs": FlopCount(
        2,
        "times the forward FLOPs: gradient of the inverse T of a triangular matrix, the triangle of -T^T G T^T for the "
        "gradient G of T: two multiplications by a triangular matrix, each with the FLOPs of forward substitution",
    ),
    "nothing": FlopCount(1, "times the forward FLOPs: a linear function, whose transpose costs the same"),
    "mask": FlopCount(1, "times the forward FLOPs: the gradient is scaled by the same mask"),
}

# Per parameter.
OPTIMIZER = {
    "adam": FlopCount(
        12,
        "m = b1 m + (1 - b1) g: 3; v = b2 v + (1 - b2) g g: 4; w -= a m / (sqrt(v) + e): 5 (Kingma and Ba, "
        "arXiv 1412.6980, bias corrections within a)",
    ),
    "momentum": FlopCount(4, "m = b m + g: 2; w -= a m: 2 (torch.optim.SGD without dampening)"),
    "sgd": FlopCount(2, "w -= a g: 2 (torch.optim.SGD)"),
}

QUANTIZED_STATE = FlopCount(
    4, "per moment in int8: times the scale of its block 1; magnitude 1, largest of the block 1, divide by it 1"
)

NORM = {
    "layernorm": FlopCount(
        7, "mean 1, subtract it 1, square 1, sum 1, times rstd 1, gain 1, bias 1 (Ba et al., arXiv 1607.06450)"
    ),
    "rmsnorm": FlopCount(4, "square 1, sum 1, times rstd 1, gain 1 (Zhang and Sennrich, arXiv 1910.07467)"),
    "batchnorm": FlopCount(
        2,
        "scale and shift, which contain mean, variance, gain and bias after training (Ioffe and Szegedy, "
        "arXiv 1502.03167, alg. 2, step 11)",
    ),
}
RESPONSE_NORM = FlopCount(
    6,
    "square 1, sum 1, times the normalized norm 1, gain 1, bias 1, add the input 1 (Woo et al., arXiv 2301.00808, "
    "alg. 1)",
)
BICUBIC = FlopCount(
    31, "4 x 4 neighbors: 16 multiplications and 15 additions, shared weights (Keys 1981, IEEE TASSP 29(6))"
)

ACTIVATION = {
    "linear": FlopCount(0),
    "relu": FlopCount(1, "max(x, 0)"),
    "relu2": FlopCount(2, "max(x, 0)^2"),
    "relu6": FlopCount(2, "min(max(x, 0), 6)"),
    "leaky_relu": FlopCount(2, "max(x, a x)"),
    "tanh": FlopCount(1),
    "sigmoid": FlopCount(3, "1 / (1 + exp(-x)), the negation not counted"),
    "silu": FlopCount(4, "x sigmoid(x)"),
    "gelu": FlopCount(5, "x (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel, arXiv 1606.08415)"),
    "gelu_tanh": FlopCount(
        9, "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2: 6 multiplications, 2 additions, tanh"
    ),
    "gelu_new": FlopCount(9, "as gelu_tanh; transformers runs it as several kernels"),
    "situ": FlopCount(
        10,
        "a tanh(x / a) sigmoid(x) of the gate: 7; b tanh(y / b) of the other half: 3 (Kimi-K3, SituAndMul of vLLM; "
        "Inkling 2, Inkling2SoftcappedSwiGLU of transformers)",
    ),
    "gelu_fast": FlopCount(9, "as gelu_tanh; several kernels, with the power written as multiplications"),
    "gelu_quick": FlopCount(5, "x sigmoid(1.702 x)"),
    "xielu": FlopCount(
        7,
        "a x^2 + x / 2 above 0, b (exp(x) - 1 - x) + x / 2 below; the larger branch is counted: exp - 1 is 1 FLOP, the "
        "choice of the branch 1, min(x, bound) 1 (arXiv 2411.13010)",
    ),
    "mish": FlopCount(5, "x tanh(log(1 + exp(x)))"),
}
LEARNED_PARAMETERS = {"xielu": 2}
"""Learned scalars of an activation function, per MLP that uses it."""
