"""Numbers in formulas: ints, arrays, symbols and traced numbers in one formula; units.

Traced numbers: a formula that is evaluated on them leaves a trace of its arithmetic, to replay or to print.

    trace = Trace()
    n = trace.input("n", least=1)
    cases = trace.cases(lambda: half(n * (n + 1)))  # a formula of n: the page of `roof explore` evaluates it
    trace.evaluate(cases, {"n": 4})  # 10

    derivation = DerivationTrace()
    time = derivation.part("time", derivation.given("bytes", 12) / derivation.given("bandwidth", 3), "s")
    derivation.steps(time)  # bytes = 12; bandwidth = 3; time = bytes / bandwidth = 12 / 3 = 4

A trace holds the operations on ints and floats in Python's order. It simplifies nothing that could change a digit.

* Equal operations are stored once.
* In a Trace the values of inputs are unknown. Where code branches on a number (`if tokens == 1`), `cases` follows both
  branches and returns the condition with the result of each. Lower bounds of inputs decide some conditions.
* In a DerivationTrace every number has a value. Only what decides the result is traced: of a minimum the smaller
  operand, of `x * condition` the condition that holds. `with_lines` names the intermediate results of a formula, by its
  assignments with a unit (`load: Seconds = loaded / rate`); each is a line of `steps`.
* A function marked with `algebra.formula` is traced once, with parameters of its own, and then called.
"""
