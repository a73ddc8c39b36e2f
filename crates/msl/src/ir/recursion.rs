//! Recursion: finds it in the call graph, and expands it to a chain of copies where its depth may be bounded.
//!
//! The back ends have no recursion. LLVM turns a call that is the last step of its function into a loop. For other recursion, the
//! functions of a cycle are copied [`LEVELS`] times, and each copy calls the next one; the last copy calls [`LIMIT`]. If interprocedural
//! constant propagation proves that no call reaches the last copy, because the depth depends on constants only, the code has
//! no recursion. Comparisons of floats with constants are made on integers there, since LLVM propagates no ranges of floats.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

/// Depth of recursion that [`expand`] allows.
pub(crate) const LEVELS: usize = 32;

/// The bits of a float without its sign.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// The function that the copy after the last level calls.
const LIMIT: &str = "__elinvar_recursion_limit";

/// A function on a cycle of the call graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recursion {
    /// Name, without parameters.
    pub name: String,
    /// Place of the declaration.
    pub file: String,
    pub line: u32,
}

/// Find a recursive function in LLVM IR text with line tables.
pub(crate) fn find(ir: &str) -> Option<Recursion> {
    let calls = calls(ir);
    let symbol = cycle(&calls)?;
    let head = ir.lines().find(|l| l.starts_with("define ") && symbol_name(l) == Some(symbol))?;
    let place = head.rsplit("!dbg !").next()?.split_whitespace().next()?;
    let subprogram = metadata(ir, place)?;
    let file = field(subprogram, "file: !").and_then(|number| metadata(ir, number));
    Some(Recursion {
        name: quoted(subprogram, "name: ")?,
        file: file.and_then(|f| quoted(f, "filename: ")).unwrap_or_default(),
        line: field(subprogram, "line: ")?.parse().ok()?,
    })
}

/// The comparison of a float with a positive constant, or the absolute value of a float, on line `line` as integer instructions, whose
/// ranges LLVM propagates. `n` numbers the line.
fn on_integers(line: &str, n: usize) -> Option<String> {
    let (result, rest) = line.trim_start().split_once(" = ")?;
    if let Some(operand) =
        rest.split_once("float @llvm.fabs.f32(float ").and_then(|(_, rest)| rest.split(')').next())
    {
        let operand = operand.trim_start_matches("noundef ");
        return Some(format!(
            "  %elinvar.{n}.b = bitcast float {operand} to i32\n  %elinvar.{n}.a = and i32 %elinvar.{n}.b, {MAGNITUDE}\n  \
             {result} = bitcast i32 %elinvar.{n}.a to float\n"
        ));
    }
    let (before, operands) = rest.strip_prefix("fcmp ")?.split_once(" float ")?;
    let (operand, constant) = operands.split_once(", ")?;
    let constant = constant.split(',').next()?.trim();
    let value = match constant.strip_prefix("0x") {
        Some(bits) => f64::from_bits(u64::from_str_radix(bits, 16).ok()?) as f32,
        None => constant.parse().ok()?,
    };
    if !operand.starts_with('%') || !value.is_normal() || value < 0.0 {
        return None;
    }
    let bits = value.to_bits();
    // Not NaN: up to the negative infinity as an unsigned number; the numbers from `low` on end in the positive infinity.
    let below = |low: u32| {
        format!(
            "  %elinvar.{n}.l = icmp slt i32 %elinvar.{n}.b, {low}\n  %elinvar.{n}.o = icmp ule i32 %elinvar.{n}.b, {}\n  \
             {result} = and i1 %elinvar.{n}.l, %elinvar.{n}.o\n",
            f32::NEG_INFINITY.to_bits() as i32
        )
    };
    let from = |low: u32| {
        format!(
            "  %elinvar.{n}.d = sub i32 %elinvar.{n}.b, {low}\n  {result} = icmp ule i32 %elinvar.{n}.d, {}\n",
            f32::INFINITY.to_bits() - low
        )
    };
    let compared = match before.rsplit(' ').next()? {
        "olt" => below(bits),
        "ole" => below(bits + 1),
        "oge" => from(bits),
        "ogt" => from(bits + 1),
        _ => return None,
    };
    Some(format!("  %elinvar.{n}.b = bitcast float {operand} to i32\n{compared}"))
}

/// Expand the cycles of the call graph that remain in the optimized IR.
pub(crate) fn expand(ir: &str, optimized: &str) -> String {
    let (calls, left) = (calls(ir), self::calls(optimized));
    let mut text = ir.to_owned();
    let mut expanded: HashSet<&str> = HashSet::new();
    for (name, _) in &calls {
        if expanded.contains(name) {
            continue;
        }
        let members = cycle_of(&calls, name);
        let remains = |member: &&&str| left.iter().any(|(name, _)| name == *member);
        if !members.iter().filter(remains).any(|member| !cycle_of(&left, member).is_empty()) {
            continue;
        }
        for member in &members {
            let Some(body) = definition(ir, member) else { continue };
            text = text.replacen(body, &at_level(body, &members, 0), 1);
            for level in 1..LEVELS {
                text.push_str(&at_level(&without_places(body), &members, level));
            }
            text.push_str(&last(&without_places(body), member));
        }
        expanded.extend(members);
    }
    let _ = writeln!(text, "declare void @{LIMIT}()");
    text
}

/// Whether expanded code may exceed its levels.
pub(crate) fn reaches_limit(ir: &str) -> bool {
    ir.contains(LIMIT)
}

/// The functions on cycles through `name`.
fn cycle_of<'a>(calls: &[(&'a str, Vec<&'a str>)], name: &str) -> Vec<&'a str> {
    let callees: HashMap<&str, &[&'a str]> =
        calls.iter().map(|(name, list)| (*name, list.as_slice())).collect();
    let reachable = |from: &str| {
        let mut found: HashSet<&'a str> = HashSet::new();
        let mut open: Vec<&'a str> = callees.get(from).copied().unwrap_or_default().to_vec();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(callees.get(next).copied().unwrap_or_default());
            }
        }
        found
    };
    let mine = reachable(name);
    if !mine.contains(name) {
        return Vec::new();
    }
    let on_cycle =
        |other: &&(&'a str, Vec<&'a str>)| mine.contains(other.0) && reachable(other.0).contains(name);
    calls.iter().filter(on_cycle).map(|(other, _)| *other).collect()
}

/// The text of a function's definition, with its line ends.
fn definition<'a>(ir: &'a str, name: &str) -> Option<&'a str> {
    let mut at = 0;
    for line in ir.split_inclusive('\n') {
        if line.starts_with("define ") && symbol_name(line) == Some(name) {
            let end = ir[at..].find("\n}\n")?;
            return Some(&ir[at..at + end + 3]);
        }
        at += line.len();
    }
    None
}

/// The definition as a copy of this level, whose calls of `members` are those of the next. Level 0 keeps its name.
fn at_level(body: &str, members: &[&str], level: usize) -> String {
    let mut out = String::with_capacity(body.len());
    for (n, line) in body.split_inclusive('\n').enumerate() {
        let called = symbol_name(line).filter(|name| members.contains(name));
        let call = n > 0 && line.contains("call ");
        match called {
            Some(name) if n == 0 && level > 0 => out.push_str(&renamed(line, name, level)),
            Some(name) if call => out.push_str(&renamed(line, name, level + 1)),
            _ => match on_integers(line, n) {
                Some(new) => out.push_str(&new),
                None => out.push_str(line),
            },
        }
    }
    out
}

/// The copy after the last level.
fn last(body: &str, name: &str) -> String {
    let head = body.lines().next().unwrap_or_default();
    format!("{}\n  call void @{LIMIT}()\n  unreachable\n}}\n", renamed(head, name, LEVELS))
}

/// The line with the symbol of this level in the place of `name`.
fn renamed(line: &str, name: &str, level: usize) -> String {
    let line = line.replacen("define linkonce_odr ", "define internal ", 1);
    match line.split_once(&format!("@\"{name}\"")) {
        Some((before, behind)) => format!("{before}@\"{name}.{level}\"{behind}"),
        None => line.replacen(&format!("@{name}("), &format!("@\"{name}.{level}\"("), 1),
    }
}

/// The definition without debug locations, which belong to one function, and without its comdat.
pub(crate) fn without_places(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    for (n, line) in body.split_inclusive('\n').enumerate() {
        let (code, end) = line.split_at(line.trim_end().len());
        let code = match code.split_once("!dbg !") {
            Some((before, behind)) => {
                let behind = behind.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{}{behind}", before.trim_end().trim_end_matches(','))
            }
            None => code.to_owned(),
        };
        if code.trim_start().starts_with("#dbg_") {
            continue;
        }
        out.push_str(&if n == 0 { code.replacen(" comdat", "", 1) } else { code });
        out.push_str(end);
    }
    out
}

/// The call graph: each function with its callees, in the module's order.
fn calls(ir: &str) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in ir.lines() {
        if let Some(name) = line.strip_prefix("define ").and(symbol_name(line)) {
            all.push((name, Vec::new()));
        } else if line.starts_with("  ")
            && line.contains("call ")
            && let (Some(callee), Some((_, callees))) = (symbol_name(line), all.last_mut())
        {
            callees.push(callee);
        }
    }
    all
}

/// The symbol of a definition or call.
pub(crate) fn symbol_name(line: &str) -> Option<&str> {
    let rest = line.split_once('@')?.1;
    if let Some(quoted) = rest.strip_prefix('"') {
        return quoted.split('"').next();
    }
    rest.split('(').next()
}

/// A function on a cycle.
fn cycle<'a>(calls: &[(&'a str, Vec<&'a str>)]) -> Option<&'a str> {
    let callees: HashMap<&str, &[&str]> = calls.iter().map(|(name, list)| (*name, list.as_slice())).collect();
    let mut done: HashSet<&str> = HashSet::new();
    for (root, _) in calls {
        // Depth-first search with an explicit stack: functions on the path, each with its next callee.
        let mut way: Vec<(&str, usize)> = vec![(*root, 0)];
        let mut on_way: HashSet<&str> = HashSet::from([*root]);
        while let Some((name, next)) = way.last_mut() {
            let list = callees.get(name).copied().unwrap_or_default();
            match list.get(*next) {
                Some(callee) if on_way.contains(callee) => {
                    return calls.iter().map(|(name, _)| *name).find(|name| name == callee);
                }
                Some(callee) => {
                    *next += 1;
                    if !done.contains(callee) && callees.contains_key(callee) {
                        on_way.insert(callee);
                        way.push((callee, 0));
                    }
                }
                None => {
                    on_way.remove(*name);
                    done.insert(*name);
                    way.pop();
                }
            }
        }
    }
    None
}

/// The text of a metadata node.
pub(crate) fn metadata<'a>(ir: &'a str, number: &str) -> Option<&'a str> {
    let head = format!("!{number} = ");
    ir.lines().find_map(|line| line.strip_prefix(&head))
}

/// The value of a field of a metadata node.
pub(crate) fn field<'a>(metadata: &'a str, name: &str) -> Option<&'a str> {
    metadata.split_once(name)?.1.split([',', ')']).next()
}

/// The value of a string field.
pub(crate) fn quoted(metadata: &str, name: &str) -> Option<String> {
    let text = metadata.split_once(name)?.1.strip_prefix('"')?.split('"').next()?;
    // LLVM escapes bytes as a backslash and two hexadecimal digits.
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let code =
            behind.get(..2).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        let escaped = code.filter(|_| byte == b'\\');
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_of_any_length() {
        let graph = |edges: &[(&'static str, &[&'static str])]| {
            cycle(&edges.iter().map(|(name, list)| (*name, list.to_vec())).collect::<Vec<_>>())
        };
        assert_eq!(graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &["outside"])]), None);
        assert_eq!(graph(&[("a", &["b"]), ("b", &["b"])]), Some("b"));
        assert_eq!(graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["d", "b"]), ("d", &[])]), Some("b"));
    }

    #[test]
    fn cycles_become_chains() {
        let ir = "define void @entry(ptr %0) {\n  %2 = call i32 @f(i32 3), !dbg !1\n  ret void\n}\n\n\
                  define linkonce_odr i32 @f(i32 %0) #1 comdat !dbg !7 {\n  %2 = call i32 @\"g h\"(i32 %0), !dbg !6\n  ret i32 %2\n}\n\
                  define internal i32 @\"g h\"(i32 %0) #1 !dbg !8 {\n  %2 = tail call i32 @f(i32 1), !range !9, !dbg !6\n  ret i32 %2\n}\n";
        let out = expand(ir, ir);
        assert_eq!(expand(ir, "").matches("define ").count(), 3);
        for part in [
            "define void @entry(ptr %0) {\n  %2 = call i32 @f(i32 3), !dbg !1\n",
            "define linkonce_odr i32 @f(i32 %0) #1 comdat !dbg !7 {\n  %2 = call i32 @\"g h.1\"(i32 %0), !dbg !6\n",
            "define internal i32 @\"f.1\"(i32 %0) #1 {\n  %2 = call i32 @\"g h.2\"(i32 %0)\n  ret i32 %2\n}\n",
            "define internal i32 @\"g h.31\"(i32 %0) #1 {\n  %2 = tail call i32 @\"f.32\"(i32 1), !range !9\n",
            "define internal i32 @\"f.32\"(i32 %0) #1 {\n  call void @__elinvar_recursion_limit()\n  unreachable\n}\n",
        ] {
            assert!(out.contains(part), "{part} in {out}");
        }
        assert_eq!(out.matches("define ").count(), 3 + 2 * LEVELS);
        assert_eq!(find(&out), None);
        assert!(reaches_limit(&out) && !reaches_limit(ir));
    }

    /// The integer instructions on one float, evaluated.
    fn evaluated(text: &str, x: f32) -> bool {
        let mut values: HashMap<&str, i64> = HashMap::from([("%x", i64::from(x.to_bits()))]);
        let mut last = 0;
        for line in text.lines() {
            let (name, rest) = line.trim().split_once(" = ").unwrap();
            let words: Vec<&str> = rest.split([' ', ',']).filter(|w| !w.is_empty()).collect();
            let get = |word: &str| values.get(word).copied().unwrap_or_else(|| word.parse().unwrap());
            let (signed, unsigned) = (|v: i64| v as i32, |v: i64| v as u32);
            last = match words[..] {
                ["bitcast", _, a, "to", _] => get(a),
                ["sub", _, a, b] => i64::from(unsigned(get(a)).wrapping_sub(unsigned(get(b)))),
                ["and", "i1", a, b] => get(a) & get(b),
                ["icmp", "slt", _, a, b] => i64::from(signed(get(a)) < signed(get(b))),
                ["icmp", "ule", _, a, b] => i64::from(unsigned(get(a)) <= unsigned(get(b))),
                _ => panic!("{line}"),
            };
            values.insert(name, last);
        }
        last != 0
    }

    #[test]
    fn comparisons_on_integers_are_those_of_floats() {
        let values =
            [12.0, 11.999_999, 12.000_001, 0.0, -0.0, -12.0, -1e30, 1e30, f32::INFINITY, f32::NEG_INFINITY];
        let values = values.into_iter().chain([f32::NAN, -f32::NAN, f32::MIN_POSITIVE, 1e-40]);
        for x in values {
            for (predicate, expected) in
                [("olt", x < 12.0), ("ole", x <= 12.0), ("oge", x >= 12.0), ("ogt", x > 12.0)]
            {
                for constant in ["1.200000e+01", "0x4028000000000000"] {
                    let line = format!("  %r = fcmp reassoc nsz {predicate} float %x, {constant}, !dbg !4\n");
                    let text = on_integers(&line, 3).unwrap();
                    assert_eq!(evaluated(&text, x), expected, "{x} {predicate}: {text}");
                }
            }
        }
        for line in [
            "  %r = fcmp oeq float %x, 1.200000e+01\n",
            "  %r = fcmp olt float %x, 0.000000e+00\n",
            "  %r = fcmp olt float %x, -1.200000e+01\n",
            "  %r = fcmp olt float %x, %y\n",
            "  %r = fcmp olt half %x, 0xH4A00\n",
            "  store float %x, ptr %y\n",
        ] {
            assert_eq!(on_integers(line, 0), None, "{line}");
        }
        let magnitude =
            on_integers("  %2 = call noundef float @llvm.fabs.f32(float %1), !dbg !3\n", 7).unwrap();
        assert!(magnitude.ends_with("  %2 = bitcast i32 %elinvar.7.a to float\n"), "{magnitude}");
    }

    #[test]
    fn strings_are_unescaped() {
        let node = r#"!DIFile(filename: "\C3\A9 \22\5C\0A.h", directory: "")"#;
        assert_eq!(quoted(node, "filename: ").as_deref(), Some("é \"\\\n.h"));
    }

    #[test]
    fn the_place_of_the_function() {
        let ir = "define void @f(i32 %0) #0 !dbg !5 {\n  %2 = call i32 @\"g h\"(i32 %0), !dbg !6\n  ret void\n}\n\
                  define internal i32 @\"g h\"(i32 %0) #1 !dbg !7 {\n  %2 = tail call noundef i32 @\"g h\"(i32 1)\n  ret i32 %2\n}\n\
                  !1 = !DIFile(filename: \"a.metal\", directory: \"\")\n\
                  !7 = distinct !DISubprogram(name: \"g\", scope: !1, file: !1, line: 12, type: !8)\n";
        let expected = Recursion { name: "g".into(), file: "a.metal".into(), line: 12 };
        assert_eq!(find(ir), Some(expected));
        assert_eq!(find(&ir.replace("tail call noundef i32 @\"g h\"(i32 1)", "add i32 0, 0")), None);
    }
}
