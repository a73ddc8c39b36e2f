//! Function pointers: replaces calls through them by comparisons with the functions that they may point to, and direct calls.
//!
//! The back ends have no addresses of functions. In unoptimized IR, a function whose address is taken, or that is `[[visible]]`, gets a
//! number, which takes the place of its address. A call through a pointer becomes a call of a function that compares the pointer with the
//! numbers of all such functions of its type, calls the one that it finds, and returns zero if there is none. LLVM inlines it, and removes the
//! comparisons where the pointer is known. The number of a visible function is that of its name ([`function_handle`]), so that the host can
//! put it into a `visible_function_table`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use elinvar_driver::function_handle;

use crate::ir::items::{items, names};
use crate::ir::recursion::{metadata, quoted};

/// Lists of functions that are kept although no code refers to them: visible functions.
const KEPT: [&str; 2] = ["@llvm.used = ", "@llvm.compiler.used = "];

/// What the numbers of functions that are not visible have set; those of visible functions do not.
const INTERNAL: u32 = 1 << 31;

/// Replace calls through function pointers in unoptimized IR.
pub(crate) fn devirtualize(ir: String) -> String {
    let kept = ir.lines().find(|line| KEPT.iter().any(|list| line.starts_with(list)));
    if kept.is_none() && !ir.lines().any(|line| Call::parse(line).is_some()) {
        return ir;
    }
    let visible: Vec<&str> = kept.into_iter().flat_map(|line| names(line).skip(1)).collect();
    let functions: Vec<Function> =
        items(&ir).into_iter().filter_map(|item| Function::parse(item, &ir, &visible)).collect();
    let by_symbol: HashMap<&str, &Function> = functions.iter().map(|f| (f.symbol, f)).collect();
    let mut out = String::with_capacity(ir.len());
    let mut dispatchers: BTreeMap<Type, usize> = BTreeMap::new();
    let mut taken: Vec<&str> = visible.clone();
    for line in ir.split_inclusive('\n') {
        if KEPT.iter().any(|list| line.starts_with(list)) {
            continue;
        }
        let line = match Call::parse(line) {
            Some(call) => {
                let count = dispatchers.len();
                let number = *dispatchers.entry(call.ty).or_insert(count);
                let separator = if call.arguments.starts_with(')') { "" } else { ", " };
                let Call { before, pointer, arguments, .. } = call;
                format!("{before}@{}(ptr {pointer}{separator}{arguments}", dispatcher(number))
            }
            None => line.to_owned(),
        };
        out.push_str(&without_addresses(&line, &by_symbol, &mut taken));
    }
    for (ty, number) in &dispatchers {
        let targets = functions.iter().filter(|f| f.ty == *ty && taken.contains(&f.symbol));
        out.push_str(&definition(ty, *number, targets));
    }
    out
}

fn dispatcher(number: usize) -> String {
    format!("elinvar.indirect.{number}")
}

/// The line with the numbers of functions in place of their addresses. Adds the functions to `taken`.
fn without_addresses<'a>(
    line: &str,
    functions: &HashMap<&str, &Function<'a>>,
    taken: &mut Vec<&'a str>,
) -> String {
    let mut out = String::with_capacity(line.len());
    let mut at = 0;
    for name in names(line) {
        let start = name.as_ptr() as usize - line.as_ptr() as usize;
        let end = start + name.len();
        // A definition or a direct call otherwise.
        if let Some(function) = functions.get(name)
            && !line[end..].starts_with('(')
        {
            out.push_str(&line[at..start]);
            let _ = write!(out, "{}", function.address());
            at = end;
            if !taken.contains(&function.symbol) {
                taken.push(function.symbol);
            }
        }
    }
    out.push_str(&line[at..]);
    out
}

/// The function that calls one of `targets` by its number.
fn definition<'a>(ty: &Type, number: usize, targets: impl Iterator<Item = &'a Function<'a>>) -> String {
    let numbered = |(i, parameter): (usize, &String)| format!("{parameter} %a{i}");
    let arguments: Vec<String> = ty.parameters.iter().enumerate().map(numbered).collect();
    let arguments = arguments.join(", ");
    let separator = if arguments.is_empty() { "" } else { ", " };
    let result = &ty.result;
    let is_void = result == "void";
    let mut text = format!(
        "\ndefine internal {result} @{}(ptr %f{separator}{arguments}) alwaysinline convergent {{\n  br label %t0\n",
        dispatcher(number)
    );
    let mut count = 0;
    for (i, function) in targets.enumerate() {
        let next = i + 1;
        let (address, symbol) = (function.address(), function.symbol);
        let (value, returned) = match is_void {
            true => (String::new(), String::new()),
            false => (format!("%r{i} = "), format!(" %r{i}")),
        };
        let _ = write!(
            text,
            "t{i}:\n  %c{i} = icmp eq ptr %f, {address}\n  br i1 %c{i}, label %y{i}, label %t{next}\ny{i}:\n  \
             {value}call {result} {symbol}({arguments})\n  ret {result}{returned}\n"
        );
        count = next;
    }
    let zero = if is_void { "" } else { " zeroinitializer" };
    let _ = writeln!(text, "t{count}:\n  ret {result}{zero}\n}}");
    text
}

/// The type of a function: of its result, and of its parameters with the attributes that are part of the calling convention.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Type {
    result: String,
    parameters: Vec<String>,
}

impl Type {
    /// From the text before a function's name, and the list of its parameters or arguments, which ends in a parenthesis. `None` for
    /// variable arguments.
    fn parse(before: &str, list: &str) -> Option<Self> {
        let before = before.trim_end();
        let result = match before.chars().last()? {
            // Of variable arguments, whose type has the parameters'.
            ')' => return None,
            '}' | ']' | '>' => &before[opening(before)?..],
            _ => before.rsplit(' ').next()?,
        };
        let parameters = split(list).into_iter().map(parameter).collect::<Option<Vec<_>>>()?;
        Some(Self { result: result.to_owned(), parameters })
    }
}

/// The type of a parameter or an argument, with the attributes that are part of the calling convention.
fn parameter(text: &str) -> Option<String> {
    let mut ty = leading_type(text)?.to_owned();
    for attribute in ["byval(", "sret("] {
        if let Some(at) = text.find(attribute) {
            let rest = &text[at..];
            let end = at + rest.find(')')? + 1;
            ty = format!("{ty} {}", &text[at..end]);
            if let Some(align) = text[end..].strip_prefix(" align ") {
                let digits = align.split(' ').next()?;
                ty = format!("{ty} align {digits}");
            }
        }
    }
    (ty != "...").then_some(ty)
}

/// The type with which a text begins.
fn leading_type(text: &str) -> Option<&str> {
    if !text.starts_with(['{', '[', '<']) {
        return text.split(' ').next().filter(|ty| !ty.is_empty());
    }
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' | '<' | '(' => depth += 1,
            '}' | ']' | '>' | ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[..=at]);
        }
    }
    None
}

/// Where the bracket opens that closes at the end of a text.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices().rev() {
        match c {
            '}' | ']' | '>' | ')' => depth += 1,
            '{' | '[' | '<' | '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The parts of a list, which ends in a parenthesis.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' | '[' | '<' | '(' => depth += 1,
            ')' if depth == 0 => {
                parts.push(list[start..at].trim());
                break;
            }
            '}' | ']' | '>' | ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(list[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// A call through a pointer.
struct Call<'a> {
    /// The line before the pointer.
    before: &'a str,
    pointer: &'a str,
    /// The rest of the line, without the opening parenthesis.
    arguments: &'a str,
    ty: Type,
}

impl<'a> Call<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        if !line.starts_with("  ") {
            return None;
        }
        let at = line.find("call ")? + "call ".len();
        // What precedes the pointer is a type, whose name is not followed by a parenthesis, and attributes.
        let mut rest = &line[at..];
        loop {
            let start = line.len() - rest.len() + rest.find(['%', '@'])?;
            let end = start + line[start..].find(|c: char| " ,()[]{}<>\n".contains(c))?;
            let name = &line[start..end];
            if !line[end..].starts_with('(') {
                rest = &line[end..];
                continue;
            }
            let arguments = &line[end + 1..];
            let ty = Type::parse(&line[at..start], arguments)?;
            return name.starts_with('%').then_some(Self {
                before: &line[..start],
                pointer: name,
                arguments,
                ty,
            });
        }
    }
}

/// A function of a module.
struct Function<'a> {
    /// With the leading `@`.
    symbol: &'a str,
    number: u32,
    ty: Type,
}

impl<'a> Function<'a> {
    fn parse(item: &'a str, ir: &'a str, visible: &[&str]) -> Option<Self> {
        let head = item.strip_prefix("define ")?.lines().next()?;
        let symbol = names(head).find(|name| name.starts_with('@'))?;
        let start = symbol.as_ptr() as usize - head.as_ptr() as usize;
        let list = head[start + symbol.len()..].strip_prefix('(')?;
        let ty = Type::parse(&head[..start], list)?;
        let name = || {
            let place = head.rsplit("!dbg !").next()?.split_whitespace().next()?;
            quoted(metadata(ir, place)?, "name: ")
        };
        let number = match visible.contains(&symbol) {
            true => function_handle(&name()?),
            false => function_handle(&symbol[1..]) | INTERNAL,
        };
        Some(Self { symbol, number, ty })
    }

    fn address(&self) -> String {
        format!("inttoptr (i64 {} to ptr)", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_their_types_are_found() {
        let line = "  %r = call fast noundef range(i32 0, 5) { <4 x float>, i32 } %f.3(ptr noundef sret(%struct.S) align 8 %0, [2 x i64] %x), !dbg !3\n";
        let call = Call::parse(line).unwrap();
        assert_eq!((call.pointer, call.ty.result.as_str()), ("%f.3", "{ <4 x float>, i32 }"));
        assert_eq!(call.ty.parameters, ["ptr sret(%struct.S) align 8", "[2 x i64]"]);
        let call = Call::parse("  call void %0()\n").unwrap();
        assert!(call.ty.parameters.is_empty() && call.arguments == ")\n");
        let call = Call::parse("  %2 = call %struct.P %1(float noundef 1.0)\n").unwrap();
        assert_eq!((call.ty.result.as_str(), call.pointer), ("%struct.P", "%1"));
        assert!(Call::parse("  %2 = call float @f(ptr %1)\n").is_none());
        assert!(Call::parse("  call void @g(ptr @f, ptr %1)\n").is_none());
        assert!(Call::parse("  %2 = load ptr, ptr %1\n").is_none());
        assert!(Call::parse("  %2 = call noundef i32 (i32, ...) %1(i32 noundef 1)\n").is_none());
    }

    #[test]
    fn addresses_become_numbers_and_calls_compare_them() {
        let ir = "@table = internal constant [2 x ptr] [ptr @a, ptr @b]\n\
            define internal float @a(float noundef %0) #0 {\n  ret float %0\n}\n\
            define internal float @b(float noundef %0) #0 {\n  ret float %0\n}\n\
            define internal float @other(float noundef %0) #0 {\n  ret float %0\n}\n\
            define internal i32 @c(i32 %0) #0 {\n  %f = select i1 true, ptr @c, ptr @c\n  ret i32 0\n}\n\
            define void @entry(ptr %0) {\n  %f = load ptr, ptr %0\n  %1 = call float %f(float noundef 2.0)\n  %2 = call float @a(float %1)\n  ret void\n}\n";
        let text = devirtualize(ir.to_owned());
        let number = |symbol: &str| function_handle(symbol) | INTERNAL;
        let address = |symbol| format!("inttoptr (i64 {} to ptr)", number(symbol));
        assert!(text.contains(&format!("[ptr {}, ptr {}]", address("a"), address("b"))), "{text}");
        assert!(text.contains("%1 = call float @elinvar.indirect.0(ptr %f, float noundef 2.0)\n"), "{text}");
        assert!(text.contains("%2 = call float @a(float %1)\n"), "{text}");
        let dispatcher =
            &text[text.find("define internal float @elinvar.indirect.0(ptr %f, float %a0)").unwrap()..];
        assert!(dispatcher.contains(&format!("icmp eq ptr %f, {}", address("b"))), "{dispatcher}");
        assert_eq!(dispatcher.matches(" = call float @").count(), 2, "{dispatcher}");
        assert!(!dispatcher.contains("@other") && !dispatcher.contains("@c("), "{dispatcher}");
    }

    #[test]
    fn visible_functions_have_the_numbers_of_their_names() {
        let ir = "@llvm.compiler.used = appending global [1 x ptr] [ptr @_Z1ff], section \"llvm.metadata\"\n\
            define internal float @_Z1ff(float noundef %0) #0 !dbg !4 {\n  ret float %0\n}\n\
            define void @entry(ptr %0) {\n  %1 = call float %0(float 2.0)\n  ret void\n}\n\
            !4 = distinct !DISubprogram(name: \"f\", linkageName: \"_Z1ff\")\n";
        let text = devirtualize(ir.to_owned());
        assert!(!text.contains("llvm.compiler.used"), "{text}");
        let number = function_handle("f");
        assert!(text.contains(&format!("icmp eq ptr %f, inttoptr (i64 {number} to ptr)")), "{text}");
    }
}
