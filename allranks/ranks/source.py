"""What is changed in a program before a rank runs it in MicroPython? Lines stay lines.

MicroPython rebinds the name in `t *= 2` where Python calls the tensor's `__imul__`, its integers have no
`bit_length`, and `exec` does not show the value of a last line, as a notebook does.
"""

OPERATIONS = {"*=": "mul", "/=": "truediv", "//=": "floordiv", "%=": "mod", "**=": "pow"}


def skip_text(source, i):
    """The place behind the string that begins at `i`."""
    quote = source[i] * 3 if source[i : i + 3] == source[i] * 3 else source[i]
    i += len(quote)
    while i < len(source) and source[i : i + len(quote)] != quote:
        i += 2 if source[i] == "\\" else 1
    return i + len(quote)


def operation_at(source, i):
    """The augmented assignment of OPERATIONS that stands at `i`, or None."""
    for op in ("**=", "//=", "*=", "/=", "%="):
        if source[i : i + len(op)] == op:
            return op
    return None


def statements(source):
    """(start, end, operation) of each logical line, without its comment.

    start: behind the `:` of an `if` or `for` in the same line. operation: (place, op) of its `op=`, or None.
    """
    i, n, depth, start, end, found = 0, len(source), 0, 0, 0, None
    while i <= n:
        c = source[i] if i < n else "\n"
        if c in "\"'":
            end = i = skip_text(source, i)
            continue
        if c == "#":
            while i < n and source[i] != "\n":
                i += 1
            continue
        if c == "\\" and source[i + 1 : i + 2] == "\n":
            i += 2
            continue
        depth += (c in "([{") - (c in ")]}")
        if c in "\n;" and depth <= 0:
            if end > start:
                yield start, end, found
            start, end, found = i + 1, i + 1, None
        elif depth == 0 and found is None:
            op = operation_at(source, i)
            if c == ":" and source[i + 1 : i + 2] != "=":
                start = i + 1
            elif op:
                found = i, op
                i += len(op) - 1
        if c not in " \t\n;":
            end = i + 1
        i += 1


def with_operations(source):
    """`source` with `x *= y` as `x = _inplace("mul", x, y)`."""
    out, done = [], 0
    for start, end, found in statements(source):
        if found:
            at, op = found
            target, value = source[start:at].strip(), source[at + len(op) : end].strip()
            out.append(source[done:at] + f'= _inplace("{OPERATIONS[op]}", {target}, {value})')
            done = end
    return "".join(out) + source[done:]


def back_over(source, end):
    """The place where the operand that ends at `end` begins: a name, attributes, calls, brackets."""
    i = end
    while i > 0:
        c = source[i - 1]
        if c in ")]":
            depth = 0
            while i > 0:
                i -= 1
                depth += (source[i] in ")]") - (source[i] in "([")
                if depth == 0:
                    break
        elif c.isalpha() or c.isdigit() or c in "_.":
            i -= 1
        else:
            break
    return i


def with_bits(source):
    """`source` with `x.bit_length()` as `_bits(x)`."""
    call = ".bit_length()"
    while call in source:
        end = source.find(call)
        start = back_over(source, end)
        source = f"{source[:start]}_bits({source[start:end]}){source[end + len(call) :]}"
    return source


def with_shown(source):
    """`source` whose last line, if it is an expression, is shown as a notebook shows it."""
    lines = [(start, end) for start, end, _ in statements(source)]
    if not lines:
        return source
    start, end = lines[-1]
    last = source[start:end]
    if last[:1] in " \t" or (start and source[start - 1] != "\n") or source[end:].strip()[:1] == ";":
        return source
    try:
        compile(last, "last line", "eval")
    except SyntaxError:
        return source
    return f"{source[:start]}_show(({last})){source[end:]}"


def prepared(source):
    """The program as it is run, with `_inplace`, `_bits` and `_show` in it."""
    return with_shown(with_operations(with_bits(source)))


def bits(number):
    """What `int.bit_length` says."""
    n, number = 0, abs(number)
    while number:
        number >>= 1
        n += 1
    return n


def changed(name, target, value):
    """`target op value` for what has no operator that changes it in place."""
    if name == "mul":
        return target * value
    if name == "truediv":
        return target / value
    if name == "floordiv":
        return target // value
    return target % value if name == "mod" else target**value
