//! Address spaces of pointers, for functions that are overloaded on them ([`crate::rewrite::dispatch`]).
//!
//! Pointers have one type in IR, whatever they point to. In optimized IR, a call of `__elinvar_address_space` is replaced by the
//! address space of the object that its pointer is derived from: an argument of the kernel, a threadgroup variable, a variable of the
//! thread, or a constant. A function that asks about its own parameter is copied for each address space that it is called with, so that
//! an overload may call another one. In the source a pointer has one address space, so that all that it may be derived from has this one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

use crate::ir::items::{items, symbol};
use crate::ir::recursion::{symbol_name, without_places};

/// Asks for an address space: of a pointer, with the number of the overload, and the set of address spaces in question.
pub(crate) const INTRINSIC: &str = "@__elinvar_address_space(";

/// Expects the address space of a pointer, with the number of the overload.
const EXPECTATION: &str = "@__elinvar_expect_address_space(";

/// In an entry, says the address space of an argument.
const ARGUMENT: &str = "@__elinvar_argument_space(";

/// Address spaces of the parameters of functions.
pub(crate) type Parameters = HashMap<String, BTreeMap<usize, u8>>;

const DEVICE: u8 = 1;
const CONSTANT: u8 = 2;
const THREADGROUP: u8 = 4;
const THREAD: u8 = 8;
/// Of a pointer in a buffer.
const BUFFER: u8 = DEVICE | CONSTANT;

/// Longest chain of stores and loads that is followed.
const DEPTH: usize = 64;

/// Whether IR asks for address spaces.
pub(crate) fn asks(ir: &str) -> bool {
    ir.contains(INTRINSIC) && ir.lines().any(|line| line.contains(INTRINSIC) && !line.starts_with("declare "))
}

/// The number of an overload that an entry asks for, or a function that remains.
pub(crate) fn unresolved(ir: &str) -> Option<usize> {
    ir.lines().find_map(|line| Query::parse(line).map(|query| query.overload))
}

/// Replace the calls whose answers are known. `None` if there is none.
pub(crate) fn resolve(ir: &str, entries: &Parameters) -> Option<String> {
    let items = items(ir);
    let globals = globals(&items);
    let functions: HashMap<&str, &str> = items
        .iter()
        .filter(|item| item.starts_with("define "))
        .filter_map(|item| Some((symbol_name(item)?, *item)))
        .collect();
    // Functions that ask about their own parameters: these.
    let asking: HashMap<&str, Vec<usize>> = functions
        .iter()
        .filter(|(name, _)| !entries.contains_key(**name))
        .map(|(name, text)| (*name, Function::parse(text, &globals, BTreeMap::new()).asked()))
        .filter(|(_, parameters)| !parameters.is_empty())
        .collect();
    let (mut out, mut changed) = (String::with_capacity(ir.len()), false);
    let mut copies = BTreeMap::new();
    for item in &items {
        if !item.starts_with("define ") {
            out.push_str(item);
            continue;
        }
        let known = symbol_name(item).and_then(|name| entries.get(name)).cloned().unwrap_or_default();
        let function = Function::parse(item, &globals, known);
        changed |= function.rewrite(&mut out, &asking, &mut copies);
    }
    for ((name, spaces), copy) in copies {
        let Some(text) = functions.get(name.as_str()) else { continue };
        // A copy of an earlier round.
        if functions.contains_key(copy.as_str()) {
            continue;
        }
        changed = true;
        let renamed = without_places(text).replacen(&format!("@{name}("), &format!("@{copy}("), 1);
        let function = Function::parse(&renamed, &globals, spaces);
        out.push('\n');
        function.rewrite(&mut out, &HashMap::new(), &mut BTreeMap::new());
    }
    changed.then_some(out)
}

/// An overload that is called with a pointer to another address space than its own: its number and that address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unexpected {
    pub overload: usize,
    pub space: &'static str,
}

/// The text without expectations, if it has any, and the first one that is known to be wrong.
pub(crate) fn expectations(ir: &str, entries: &Parameters) -> Option<(String, Option<Unexpected>)> {
    if !ir.contains(EXPECTATION) {
        return None;
    }
    let items = items(ir);
    let globals = globals(&items);
    let (mut out, mut found) = (String::with_capacity(ir.len()), None);
    for item in &items {
        let known = symbol_name(item).and_then(|name| entries.get(name)).cloned().unwrap_or_default();
        let function = Function::parse(item, &globals, known);
        for line in item.split_inclusive('\n') {
            let Some((_, arguments)) = line.split_once(EXPECTATION).filter(|_| item.starts_with("define "))
            else {
                out.push_str(line);
                continue;
            };
            let wrong = operand(arguments).and_then(|(pointer, behind)| {
                let (overload, space) = numbers(behind)?;
                let known = function.space(pointer, DEPTH)?;
                (known != 0 && known & space == 0).then(|| Unexpected { overload, space: name(known) })
            });
            found = found.or(wrong);
        }
    }
    Some((out, found))
}

fn name(space: u8) -> &'static str {
    match space {
        DEVICE => "device",
        CONSTANT => "constant",
        THREADGROUP => "threadgroup",
        THREAD => "thread",
        _ => "device or constant",
    }
}

/// The address spaces of the entries' parameters, from unoptimized IR, and the text without the lines that say them.
pub(crate) fn of_arguments(written: &str) -> (Parameters, String) {
    let mut entries = Parameters::new();
    if written.contains(ARGUMENT) {
        for item in
            items(written).into_iter().filter(|item| item.starts_with("define ") && item.contains(ARGUMENT))
        {
            entries.extend(symbol_name(item).map(|name| (name.to_owned(), said(item))));
        }
    }
    (entries, written.split_inclusive('\n').filter(|line| !line.contains(ARGUMENT)).collect())
}

/// The address spaces of an entry's parameters, each of which is stored in a variable first.
fn said(text: &str) -> BTreeMap<usize, u8> {
    let globals = HashMap::new();
    let function = Function::parse(text, &globals, BTreeMap::new());
    let said = text.lines().filter_map(|line| {
        let (pointer, behind) = operand(line.split_once(ARGUMENT)?.1)?;
        let space = behind.split(')').next()?.rsplit(' ').next()?.parse().ok()?;
        let (variable, _) = operand(function.instructions.get(pointer)?.strip_prefix("load ptr, ")?)?;
        let stores =
            text.lines().filter_map(|line| bare_operand(line.trim_start().strip_prefix("store ptr ")?));
        let stored = |(value, behind): (&'_ str, &'_ str)| {
            let target = operand(behind.strip_prefix(", ")?)?.0;
            function.parameters.iter().position(|name| *name == value).filter(|_| target == variable)
        };
        Some((stores.filter_map(stored).next()?, space))
    });
    said.collect()
}

/// The address spaces of variables.
fn globals<'a>(items: &[&'a str]) -> HashMap<&'a str, u8> {
    let variables = items.iter().filter(|item| item.starts_with('@'));
    variables.filter_map(|item| Some((symbol(item)?, of_global(item)))).collect()
}

fn of_global(item: &str) -> u8 {
    if item.contains("section \"elinvar.threadgroup\"") {
        THREADGROUP
    } else if item.starts_with("@__const.") {
        // The initial value of a variable of the thread.
        THREAD
    } else {
        CONSTANT
    }
}

/// A call of the intrinsic.
struct Query<'a> {
    result: &'a str,
    pointer: &'a str,
    overload: usize,
    mask: u8,
}

impl<'a> Query<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (result, rest) = line.trim_start().split_once(" = ")?;
        let (before, arguments) = rest.split_once(INTRINSIC)?;
        if !before.contains("call ") {
            return None;
        }
        let (pointer, behind) = operand(arguments)?;
        let (overload, mask) = numbers(behind)?;
        Some(Self { result, pointer, overload, mask })
    }
}

/// The two numbers that follow a pointer in a list of arguments.
fn numbers(behind: &str) -> Option<(usize, u8)> {
    let mut numbers = behind.split(')').next()?.split(',').skip(1).map(|a| a.rsplit(' ').next());
    Some((numbers.next()??.parse().ok()?, numbers.next()??.parse().ok()?))
}

/// A function that is called with parameters of known address spaces, and its copy for these.
type Copies = BTreeMap<(String, BTreeMap<usize, u8>), String>;

/// A function's text.
struct Function<'a> {
    text: &'a str,
    /// Instructions by their results.
    instructions: HashMap<&'a str, &'a str>,
    parameters: Vec<&'a str>,
    /// Address spaces of parameters, as far as they are known.
    known: BTreeMap<usize, u8>,
    globals: &'a HashMap<&'a str, u8>,
}

impl<'a> Function<'a> {
    fn parse(text: &'a str, globals: &'a HashMap<&'a str, u8>, known: BTreeMap<usize, u8>) -> Self {
        let instructions = text.lines().skip(1).filter_map(|line| line.strip_prefix("  ")?.split_once(" = "));
        Self { text, instructions: instructions.collect(), parameters: parameters(text), known, globals }
    }

    /// The parameters about which it asks, and of which nothing is known.
    fn asked(&self) -> Vec<usize> {
        let mut asked = BTreeSet::new();
        for query in self.text.lines().filter_map(Query::parse) {
            let mut roots = BTreeSet::new();
            if self.roots(query.pointer, &mut roots).is_some() {
                let parameter = |root: &&str| self.parameters.iter().position(|name| name == root);
                asked.extend(roots.iter().filter_map(parameter).filter(|i| !self.known.contains_key(i)));
            }
        }
        asked.into_iter().collect()
    }

    /// Append the text, with answers to what it asks, and calls of copies. Whether it differs.
    fn rewrite(&self, out: &mut String, asking: &HashMap<&str, Vec<usize>>, copies: &mut Copies) -> bool {
        let mut changed = false;
        for line in self.text.split_inclusive('\n') {
            let answer = Query::parse(line).and_then(|query| Some((query.result, self.answer(&query)?)));
            if let Some((result, space)) = answer {
                let _ = writeln!(out, "  {result} = add i32 0, {space}");
                changed = true;
                continue;
            }
            match self.call_of_copy(line, asking, copies) {
                Some(new) => {
                    out.push_str(&new);
                    changed = true;
                }
                None => out.push_str(line),
            }
        }
        changed
    }

    fn answer(&self, query: &Query) -> Option<u8> {
        let found = self.space(query.pointer, DEPTH)?;
        match (found.count_ones(), (found & query.mask).count_ones()) {
            // Only null pointers.
            (0, _) => Some(query.mask & query.mask.wrapping_neg()),
            (1, _) => Some(found),
            (_, 1) if found == BUFFER => Some(found & query.mask),
            _ => None,
        }
    }

    /// The line as a call of a copy of its callee, if that asks about parameters whose address spaces are known here.
    fn call_of_copy(
        &self,
        line: &str,
        asking: &HashMap<&str, Vec<usize>>,
        copies: &mut Copies,
    ) -> Option<String> {
        let at = line.find("call ").filter(|_| line.starts_with("  "))?;
        let start = at + line[at..].find('@')?;
        let name = symbol_name(&line[at..])?;
        let asked = asking.get(name)?;
        let open = start + 1 + name.len();
        let arguments = arguments(line.get(open..)?)?;
        let space = |i: &usize| {
            let (pointer, _) = operand(arguments.get(*i)?)?;
            Some((*i, self.space(pointer, DEPTH).filter(|space| space.count_ones() == 1)?))
        };
        let spaces = asked.iter().map(space).collect::<Option<BTreeMap<_, _>>>()?;
        let suffix: String = spaces.iter().map(|(i, space)| format!(".{i}_{space}")).collect();
        let copy =
            copies.entry((name.to_owned(), spaces)).or_insert_with(|| format!("{name}.elinvar{suffix}"));
        Some(format!("{}@{copy}{}", &line[..start], &line[open..]))
    }

    /// The address spaces that a pointer may point to; `None` if they are unknown.
    fn space(&self, pointer: &'a str, depth: usize) -> Option<u8> {
        let mut roots = BTreeSet::new();
        self.roots(pointer, &mut roots)?;
        roots.into_iter().try_fold(0, |spaces, root| Some(spaces | self.space_of_root(root, depth)?))
    }

    fn space_of_root(&self, root: &'a str, depth: usize) -> Option<u8> {
        if let Some(space) = self.globals.get(root) {
            return Some(*space);
        }
        if let Some(i) = self.parameters.iter().position(|name| *name == root) {
            return self.known.get(&i).copied();
        }
        let instruction = self.instructions.get(root)?;
        if instruction.starts_with("alloca ") {
            return Some(THREAD);
        }
        let (address, _) = operand(instruction.strip_prefix("load ptr, ")?)?;
        self.loaded(address, depth.checked_sub(1)?)
    }

    /// The address spaces of pointers in the memory at an address.
    fn loaded(&self, address: &'a str, depth: usize) -> Option<u8> {
        let mut objects = BTreeSet::new();
        self.roots(address, &mut objects)?;
        let mut spaces = 0;
        for object in objects {
            spaces |= match self.space_of_root(object, depth)? {
                // Buffers hold pointers to buffers only.
                space if space & !BUFFER == 0 => BUFFER,
                _ => self.stored(object, depth)?,
            };
        }
        Some(spaces)
    }

    /// The address spaces of the pointers that are stored in an object.
    fn stored(&self, object: &'a str, depth: usize) -> Option<u8> {
        let depth = depth.checked_sub(1)?;
        let is_object = |pointer: &'a str| {
            let mut roots = BTreeSet::new();
            self.roots(pointer, &mut roots).map(|()| roots.contains(object))
        };
        let mut spaces = 0;
        for line in self.text.lines().skip(1) {
            if let Some(store) = line.trim_start().strip_prefix("store ptr ") {
                let (value, behind) = bare_operand(store)?;
                if is_object(operand(behind.strip_prefix(", ")?)?.0)? {
                    spaces |= self.space(value, depth)?;
                }
            } else if let Some(at) = line.find("call ") {
                let callee = &line[at..];
                let open = callee.find('@').and_then(|name| Some(name + callee[name..].find('(')?));
                let Some(arguments) = open.and_then(|open| arguments(&callee[open..])) else { continue };
                let pointers: Vec<&str> = arguments.iter().filter_map(|a| Some(operand(a)?.0)).collect();
                let copies = callee.contains("@llvm.memcpy.") || callee.contains("@llvm.memmove.");
                let harmless = ["@llvm.lifetime.", "@llvm.memset.", INTRINSIC, EXPECTATION]
                    .iter()
                    .any(|name| callee.contains(name));
                for (i, pointer) in pointers.iter().enumerate().filter(|_| !harmless) {
                    if !is_object(pointer)? {
                        continue;
                    }
                    match (copies, i) {
                        (true, 0) => spaces |= self.loaded(pointers.get(1)?, depth)?,
                        (true, _) => {}
                        _ => return None,
                    }
                }
            }
        }
        Some(spaces)
    }

    /// Add the objects, parameters and loads that a pointer is derived from; `None` for other instructions.
    fn roots(&self, pointer: &'a str, roots: &mut BTreeSet<&'a str>) -> Option<()> {
        let (mut seen, mut next) = (BTreeSet::new(), vec![pointer]);
        while let Some(pointer) = next.pop() {
            if pointer.is_empty() || !seen.insert(pointer) {
                continue;
            }
            let Some(instruction) = self.instructions.get(pointer) else {
                roots.insert(pointer);
                continue;
            };
            let word = instruction.split(' ').next()?;
            match word {
                "alloca" | "load" => {
                    roots.insert(pointer);
                }
                "getelementptr" => next.push(operand(&instruction[instruction.find(", ptr ")? + 2..])?.0),
                "freeze" => next.push(operand(instruction.strip_prefix("freeze ")?)?.0),
                "select" => {
                    let (first, rest) = operand(&instruction[instruction.find(", ptr ")? + 2..])?;
                    next.extend([first, operand(rest.strip_prefix(", ")?)?.0]);
                }
                "phi" => {
                    let incoming = instruction.strip_prefix("phi ptr ")?;
                    for value in incoming.split("[ ").skip(1) {
                        next.push(bare_operand(value)?.0);
                    }
                }
                _ => return None,
            }
        }
        Some(())
    }
}

/// The names of the parameters of the function that a text defines.
fn parameters(text: &str) -> Vec<&str> {
    let line = text.lines().next().unwrap_or_default();
    let open = line.find('@').and_then(|name| Some(name + line[name..].find('(')?));
    let list = open.and_then(|open| arguments(&line[open..])).unwrap_or_default();
    list.iter().map(|parameter| parameter.rsplit(' ').next().unwrap_or_default()).collect()
}

/// The elements of a list in parentheses, which the text begins with.
fn arguments(text: &str) -> Option<Vec<&str>> {
    let list = text.strip_prefix('(')?;
    let (mut found, mut from, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'(' | b'[' | b'{' | b'<' => depth += 1,
            b')' if depth == 0 => {
                let last = list[from..at].trim();
                found.extend((!last.is_empty()).then_some(last));
                return Some(found);
            }
            b')' | b']' | b'}' | b'>' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                found.push(list[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    None
}

/// The operand `ptr …` that a text begins with, and what follows it.
fn operand(text: &str) -> Option<(&str, &str)> {
    bare_operand(text.trim_start().strip_prefix("ptr ")?)
}

/// An operand after its type: a name, or empty for null and undefined pointers, and what follows it.
fn bare_operand(text: &str) -> Option<(&str, &str)> {
    let mut rest = text.trim_start();
    loop {
        let end = rest.find([' ', ',', ')']).unwrap_or(rest.len());
        let word = &rest[..end];
        if word.starts_with('%') || word.starts_with('@') {
            return Some((word, &rest[end..]));
        }
        match word.split('(').next()? {
            "null" | "undef" | "poison" => return Some(("", &rest[end..])),
            "getelementptr" => {
                let open = rest.find('(')?;
                let close = open + closing(&rest[open..])?;
                let list = &rest[open..close];
                let (base, _) = operand(&list[list.find(", ptr ")? + 2..])?;
                return Some((base, &rest[close + 1..]));
            }
            // An attribute.
            "" => return None,
            _ => {
                let open = rest.find('(').filter(|open| *open < end);
                let end = open.map_or(Some(end), |open| Some(open + closing(&rest[open..])? + 1))?;
                // `align 4`
                let number =
                    if word == "align" { 1 + rest[end..].trim_start().find([' ', ','])? } else { 0 };
                rest = rest.get(end + number..)?.trim_start();
            }
        }
    }
}

/// The parenthesis that closes the one that a text begins with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    text.bytes().enumerate().find_map(|(at, byte)| {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IR: &str = "@s = internal global [4 x float] undef, section \"elinvar.threadgroup\", align 4\n\
        @c = internal constant [2 x float] zeroinitializer\n\
        define void @__elinvar_entry(ptr noundef %0, ptr nocapture noundef readonly %1) {\n\
        \x20 %3 = getelementptr inbounds nuw i8, ptr %0, i64 4\n\
        \x20 %4 = select i1 true, ptr %3, ptr null\n\
        \x20 %5 = tail call i32 @__elinvar_address_space(ptr noundef %4, i32 noundef 0, i32 noundef 5) #2, !dbg !4\n\
        \x20 %6 = tail call i32 @__elinvar_address_space(ptr getelementptr inbounds (i8, ptr @s, i64 8), i32 0, i32 5)\n\
        \x20 %7 = alloca [2 x ptr], align 8\n\
        \x20 store ptr @c, ptr %7, align 8\n\
        \x20 %8 = getelementptr i8, ptr %7, i64 8\n\
        \x20 store ptr null, ptr %8, align 8\n\
        \x20 %9 = load ptr, ptr %8, align 8\n\
        \x20 %10 = call i32 @__elinvar_address_space(ptr align 4 dereferenceable(4) %9, i32 0, i32 7)\n\
        \x20 %11 = load ptr, ptr %1, align 8\n\
        \x20 %12 = call i32 @__elinvar_address_space(ptr %11, i32 3, i32 3)\n\
        \x20 %13 = call i32 @__elinvar_address_space(ptr %11, i32 3, i32 12)\n\
        \x20 call void @f(ptr %3)\n\
        \x20 call void @__elinvar_expect_address_space(ptr %0, i32 4, i32 1)\n\
        \x20 call void @__elinvar_expect_address_space(ptr @s, i32 5, i32 9)\n\
        \x20 ret void\n}\n\
        define internal void @f(ptr %0) {\n\
        \x20 %2 = call i32 @__elinvar_address_space(ptr %0, i32 0, i32 5)\n\
        \x20 call void @f(ptr @s)\n\
        \x20 ret void\n}\n\
        declare i32 @__elinvar_address_space(ptr, i32, i32)\n";

    fn entries() -> Parameters {
        Parameters::from([("__elinvar_entry".to_owned(), BTreeMap::from([(0, DEVICE), (1, CONSTANT)]))])
    }

    #[test]
    fn pointers_are_traced() {
        let once = resolve(IR, &entries()).unwrap();
        for line in [
            "%5 = add i32 0, 1\n",
            "%6 = add i32 0, 4\n",
            "%10 = add i32 0, 2\n",
            "call void @f.elinvar.0_1(ptr %3)\n",
        ] {
            assert!(once.contains(&format!("  {line}")), "{line} in {once}");
        }
        // Of a pointer in a buffer: both are possible, or neither.
        assert!(once.contains("%12 = call ") && once.contains("%13 = call "));
        assert!(once.contains(
            "define internal void @f.elinvar.0_1(ptr %0) {\n  %2 = add i32 0, 1\n  call void @f(ptr @s)\n"
        ));
        let twice = resolve(&once, &entries()).unwrap();
        assert_eq!(twice.matches("define internal void @f").count(), 3, "{twice}");
        assert_eq!(twice.matches("call void @f.elinvar.0_4(ptr @s)").count(), 3, "{twice}");
        assert_eq!(resolve(&twice, &entries()), None);
        assert_eq!((asks(&twice), unresolved(&twice)), (true, Some(3)));
    }

    #[test]
    fn expectations_are_compared() {
        let (text, wrong) = expectations(IR, &entries()).unwrap();
        assert_eq!(wrong, Some(Unexpected { overload: 5, space: "threadgroup" }));
        assert_eq!(text.lines().count(), IR.lines().count() - 2);
        assert!(!text.contains("expect") && expectations(&text, &entries()).is_none());
    }

    #[test]
    fn entries_say_their_arguments() {
        let written = "define void @__elinvar_entry(ptr noundef %0, ptr noundef %1) {\n  %3 = alloca ptr\n  %4 = alloca ptr\n  \
            store ptr %0, ptr %3, align 8\n  store ptr %1, ptr %4, align 8\n  %5 = load ptr, ptr %4, align 8\n  \
            call void @__elinvar_argument_space(ptr noundef %5, i32 noundef 2)\n  ret void\n}\n";
        let (entries, text) = of_arguments(written);
        assert_eq!(entries["__elinvar_entry"], BTreeMap::from([(1, CONSTANT)]));
        assert!(!text.contains("argument_space") && text.contains("ret void"));
    }
}
