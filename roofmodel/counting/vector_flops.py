"""Vector FLOPs per element: the work that is no contraction, where every constant is spelled out.

Convention: each addition, subtraction, multiplication, division, comparison and each elementary
function (exp, tanh, erf, rsqrt) counts 1. Hardware takes several instructions for some of them; these
operators are memory-bound by far, so the convention moves no bound. Work once per row (a mean's
division, one rsqrt) is left out.
"""

from __future__ import annotations

ADD = 1

SCALE = 1  # q k^T / sqrt(h)
MASK = 1  # + mask, where the mask is added as a matrix
SOFTMAX = 5  # running max 1, subtract it 1, exp 1, sum 1, divide 1
CHOOSE = 1  # the largest few: one comparison an element, at least

# x' = x cos + rotate(x) sin: two products and a sum (RoFormer, arXiv 2104.09864, eq. 34)
ROTARY = 3

# squares 1, sum 1, times the inverse of its root 1
UNIT_LENGTH = 3

# A state space's time step: plus its bias 1, softplus log(1 + exp(x)) 3 (Mamba, arXiv 2312.00752, alg. 2)
STEP = 4
# Per element of the state: step times A 1, exp 1, (step x) times B 1 (eq. 4 there, B as its code simplifies it)
DISCRETISE = 3

# A gate on what heads give: sigmoid 3, or softplus log(1 + exp(x)) 3
GATE = 3

# The gradient of vector work, by what it keeps, as a multiple of the forward's FLOPs.
BACKWARD = {
    "inputs": 2,  # for each operation its derivative, and the product with the gradient that arrives
    "outputs": 1,  # softmax: p (g - sum g p) is two products, a sum and a difference, and the scale
    "nothing": 1,  # linear: the same work, transposed
}

# The optimizer's step, per parameter.
OPTIMIZER = {
    # m = b1 m + (1 - b1) g: 3; v = b2 v + (1 - b2) g g: 4; w -= a m / (sqrt(v) + e): 5 (Kingma and Ba, arXiv 1412.6980,
    # the bias corrections within a)
    "adam": 12,
    "momentum": 4,  # m = b m + g: 2; w -= a m: 2
    "sgd": 2,  # w -= a g
}

NORM = {
    # mean 1, subtract it 1, square 1, sum 1, times rstd 1, gain 1, bias 1 (Ba et al., arXiv 1607.06450)
    "layernorm": 7,
    # square 1, sum 1, times rstd 1, gain 1 (Zhang and Sennrich, arXiv 1910.07467)
    "rmsnorm": 4,
    # scale and shift, into which mean, variance, gain and bias fold once training is over (Ioffe and Szegedy,
    # arXiv 1502.03167, alg. 2, step 11)
    "batchnorm": 2,
}
# square 1, sum 1, times the normalised norm 1, gain 1, bias 1, plus the input 1 (Woo et al., arXiv 2301.00808, alg. 1)
RESPONSE_NORM = 6
# Keys' kernel over 4 x 4 neighbours (Keys 1981, IEEE TASSP 29(6)): 16 products and 15 sums, the weights shared
BICUBIC = 31

ACTIVATION = {
    "linear": 0,
    "relu": 1,  # max(x, 0)
    "relu2": 2,  # max(x, 0)^2
    "relu6": 2,  # min(max(x, 0), 6)
    "leaky_relu": 2,  # max(x, a x)
    "tanh": 1,
    "sigmoid": 3,  # 1 / (1 + exp(-x)), the sign free
    "silu": 4,  # x sigmoid(x)
    "gelu": 5,  # x (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel, arXiv 1606.08415)
    "gelu_tanh": 9,  # x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2: six products, two sums, tanh
    "gelu_new": 9,  # the same, of several kernels in transformers
    "gelu_fast": 9,  # the same, of others: its power is written as products
    "gelu_quick": 5,  # x sigmoid(1.702 x)
    # a x^2 + x / 2 above 0, b (exp(x) - 1 - x) + x / 2 below, of which more is counted: exp - 1 is one, the choice of a
    # side and the least of x and a bound one each (arXiv 2411.13010)
    "xielu": 7,
    "mish": 5,  # x tanh(log(1 + exp(x)))
}
LEARNED = {"xielu": 2}
"""Numbers that an activation learns, for each MLP that has it."""
