//! Finds recursion, which MSL does not have, in the call graph of unoptimized IR.

use std::collections::{HashMap, HashSet};

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
fn symbol_name(line: &str) -> Option<&str> {
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
