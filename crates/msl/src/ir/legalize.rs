//! Legalizes integer division, shifts and `bool` loads before optimization, so that they are defined for every operand.
//!
//! Division by zero, over-wide shifts and `MIN / -1` are undefined or poison in LLVM IR, which optimizes on the assumption that
//! they do not occur. Each such instruction becomes a call of a small function, which is inlined: division by zero gives 0
//! (quotient and remainder), `MIN / -1` gives `MIN` with remainder 0, and shift amounts are taken modulo the width. Instructions
//! with constant operands for which LLVM defines the result stay.
//!
//! `noinline` is dropped: Metal's compiler inlines functions with this attribute into kernels as well, and the back ends support barriers
//! in the kernel itself only.
//!
//! clang marks loads of `bool` as 0 or 1 (`!range`) and as initialized (`!noundef`). Memory comes from the launch, so any
//! nonzero byte is true here, and the metadata is removed.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;

/// Legalize unoptimized LLVM IR text.
pub(crate) fn legalize(ir: &str) -> String {
    let mut out = String::with_capacity(ir.len() + ir.len() / 16);
    let mut used = BTreeSet::new();
    let mut bools = Bools::default();
    for line in ir.split_inclusive('\n') {
        if line.starts_with("attributes #") {
            out.push_str(&line.replace(" noinline ", " "));
            continue;
        }
        match call(line, &mut used).or_else(|| bools.rewrite(line)) {
            Some(new) => out.push_str(&new),
            None => out.push_str(line),
        }
    }
    for (op, width) in used {
        out.push_str(&function(op, width));
    }
    out
}

/// The values of a function that were loaded as `bool`.
#[derive(Default)]
struct Bools<'a> {
    loaded: HashSet<&'a str>,
}

impl<'a> Bools<'a> {
    /// Rewrite a load without range metadata, or the truncation of a loaded `bool`; `None` for other lines.
    fn rewrite(&mut self, line: &'a str) -> Option<String> {
        if line.starts_with("define ") {
            self.loaded.clear();
            return None;
        }
        let (result, instruction) = line.strip_prefix("  %")?.split_once(" = ")?;
        if instruction.starts_with("load ") {
            let range = instruction.contains(", !range !");
            if range && instruction.starts_with("load i8, ") {
                self.loaded.insert(result);
            }
            let says = |part: &&str| ["!range !", "!noundef !"].iter().any(|kind| part.starts_with(kind));
            let parts: Vec<&str> = instruction.trim_end().split(", ").filter(|part| !says(part)).collect();
            return Some(format!("  %{result} = {}\n", parts.join(", ")));
        }
        let (head, rest) = instruction.split_once(" %")?;
        let (value, behind) = rest.split_once(" to i1")?;
        let truth = head.starts_with("trunc ") && head.ends_with(" i8") && self.loaded.contains(value);
        truth.then(|| format!("  %{result} = icmp ne i8 %{value}, 0{behind}"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Op {
    UDiv,
    SDiv,
    URem,
    SRem,
    Shl,
    LShr,
    AShr,
}

impl Op {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "udiv" => Self::UDiv,
            "sdiv" => Self::SDiv,
            "urem" => Self::URem,
            "srem" => Self::SRem,
            "shl" => Self::Shl,
            "lshr" => Self::LShr,
            "ashr" => Self::AShr,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::UDiv => "udiv",
            Self::SDiv => "sdiv",
            Self::URem => "urem",
            Self::SRem => "srem",
            Self::Shl => "shl",
            Self::LShr => "lshr",
            Self::AShr => "ashr",
        }
    }

    /// Whether LLVM defines the result for this constant right operand.
    fn is_defined_for(self, width: u32, operand: i128) -> bool {
        match self {
            Self::UDiv | Self::URem => operand != 0,
            Self::SDiv | Self::SRem => operand != 0 && operand != -1,
            Self::Shl | Self::LShr | Self::AShr => (0..i128::from(width)).contains(&operand),
        }
    }
}

/// Rewrite `  %r = op flags iN a, b, …` to a call; `None` for other lines and for operands that are defined.
fn call(line: &str, used: &mut BTreeSet<(Op, u32)>) -> Option<String> {
    let (result, instruction) = line.strip_prefix("  %")?.split_once(" = ")?;
    let mut words = instruction.splitn(2, ' ');
    let op = Op::parse(words.next()?)?;
    let mut rest = words.next()?;
    while let Some(behind) = ["exact ", "nuw ", "nsw "].iter().find_map(|flag| rest.strip_prefix(flag)) {
        rest = behind;
    }
    let (ty, rest) = rest.split_once(' ')?;
    let width: u32 = ty.strip_prefix('i')?.parse().ok()?;
    let (a, rest) = rest.split_once(", ")?;
    let end = rest.find([',', '\n']).unwrap_or(rest.len());
    let (b, tail) = rest.split_at(end);
    if b.trim().parse().is_ok_and(|operand| op.is_defined_for(width, operand)) || !width.is_power_of_two() {
        return None;
    }
    used.insert((op, width));
    Some(format!("  %{result} = call {ty} @elinvar.{}.{ty}({ty} {a}, {ty} {}){tail}", op.name(), b.trim()))
}

/// The definition of the function that replaces an operation.
fn function(op: Op, width: u32) -> String {
    let (name, ty) = (op.name(), format!("i{width}"));
    let mut text = format!(
        "\ndefine internal {ty} @elinvar.{name}.{ty}({ty} %a, {ty} %b) alwaysinline nounwind willreturn memory(none) {{\n"
    );
    let _ = match op {
        Op::Shl | Op::LShr | Op::AShr => {
            write!(text, "  %n = and {ty} %b, {}\n  %r = {name} {ty} %a, %n\n", width - 1)
        }
        Op::UDiv | Op::URem => write!(
            text,
            "  %zero = icmp eq {ty} %b, 0\n  %d = select i1 %zero, {ty} 1, {ty} %b\n  %q = {name} {ty} %a, %d\n  \
             %r = select i1 %zero, {ty} 0, {ty} %q\n"
        ),
        Op::SDiv | Op::SRem => {
            let by_minus_one = if op == Op::SDiv { "%negated" } else { "0" };
            write!(
                text,
                "  %zero = icmp eq {ty} %b, 0\n  %one = icmp eq {ty} %b, -1\n  %risk = or i1 %zero, %one\n  \
                 %d = select i1 %risk, {ty} 1, {ty} %b\n  %q = {name} {ty} %a, %d\n  \
                 %negated = sub {ty} 0, %a\n  %s = select i1 %one, {ty} {by_minus_one}, {ty} %q\n  \
                 %r = select i1 %zero, {ty} 0, {ty} %s\n"
            )
        }
    };
    text + &format!("  ret {ty} %r\n}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_is_a_bool() {
        let text = "define i1 @f(ptr %0) {\n  %2 = load i8, ptr %0, align 1, !tbaa !5, !range !9, !noundef !10, !dbg !3\n  \
                    %3 = trunc i8 %2 to i1, !dbg !4\n  %4 = load i32, ptr %0, align 4, !noundef !10\n  ret i1 %3\n}\n\
                    define i1 @g(i8 %2) {\n  %3 = trunc nuw i8 %2 to i1\n  ret i1 %3\n}\n";
        let out = legalize(text);
        for line in [
            "  %2 = load i8, ptr %0, align 1, !tbaa !5, !dbg !3\n",
            "  %3 = icmp ne i8 %2, 0, !dbg !4\n",
            "  %4 = load i32, ptr %0, align 4\n",
            "  %3 = trunc nuw i8 %2 to i1\n",
        ] {
            assert!(out.contains(line), "{line} in {out}");
        }
    }

    #[test]
    fn divisions_and_shifts_become_calls() {
        let text = "  %3 = sdiv exact i32 %1, %2, !dbg !7\n  %4 = shl nuw nsw i64 1, %3\n  %5 = udiv i32 %1, 4\n  \
                    %6 = ashr i32 %1, 40\n  %7 = fdiv float %a, %b\n  %8 = lshr i64 %1, 63\n";
        let out = legalize(text);
        let lines: Vec<&str> = out.lines().take(6).collect();
        assert_eq!(
            lines,
            [
                "  %3 = call i32 @elinvar.sdiv.i32(i32 %1, i32 %2), !dbg !7",
                "  %4 = call i64 @elinvar.shl.i64(i64 1, i64 %3)",
                "  %5 = udiv i32 %1, 4",
                "  %6 = call i32 @elinvar.ashr.i32(i32 %1, i32 40)",
                "  %7 = fdiv float %a, %b",
                "  %8 = lshr i64 %1, 63",
            ]
        );
        assert_eq!(out.matches("\ndefine internal").count(), 3, "{out}");
        assert!(out.contains("  %n = and i64 %b, 63\n"), "{out}");
        for (op, operand, is_defined_for) in [
            ("sdiv", "3", true),
            ("sdiv", "0", false),
            ("sdiv", "-1", false),
            ("srem", "-2", true),
            ("srem", "-1", false),
            ("urem", "0", false),
            ("udiv", "-1", true),
            ("shl", "32", false),
            ("shl", "31", true),
        ] {
            let line = format!("  %2 = {op} i32 %1, {operand}\n");
            assert_eq!(legalize(&line).contains(&line), is_defined_for, "{line}");
        }
    }
}
