//! `elinvar analyze --fix`: advice as edits of the source, for what is written plainly enough that the edit keeps the kernel's results.
//!
//! What an edit cannot be made for is said with the reason. A patched source is compiled before it is written.

use std::path::Path;

use elinvar::Source;
use elinvar_analysis::{Advice, Remedy};
use elinvar_code::{Program, user_cache};
use elinvar_msl::InductionVariables;

use super::tokens::{Definition, Token, closing, definition, matches, positions, tokens};
use crate::failure::{Failure, Result};
use crate::report::{say, say_text};

/// A replacement of a part of the text; an insertion if the part is empty.
struct Edit {
    start: usize,
    end: usize,
    text: String,
}

/// The edits of a piece of advice, and what the host has to change.
struct Fix {
    edits: Vec<Edit>,
    host: Option<&'static str>,
}

/// The advice on one kernel.
pub struct Wanted<'a> {
    pub kernel: &'a str,
    pub advice: &'a [Advice],
}

/// Patches a file by the advice on its kernels, or prints the patch as a unified diff.
pub fn fix(file: &Path, source: &Source, wanted: &[Wanted<'_>], is_dry: bool) -> Result<()> {
    let Some(first) = source.files.first() else { return Ok(()) };
    let text = &first.text;
    let all = tokens(text);
    let mut edits: Vec<Edit> = Vec::new();
    for Wanted { kernel, advice } in wanted {
        for advice in advice.iter().filter(|advice| is_fixable(advice.remedy)) {
            let line = advice.location.as_ref().map_or(0, |place| place.line);
            let place = format!("{}:{line}: kernel `{kernel}`: {}", file.display(), advice.remedy.name());
            let made = match advice.location.as_ref().is_none_or(|place| place.file == first.name) {
                true => edit(text, &all, kernel, advice),
                false => Err("it is in an included file".to_owned()),
            };
            match made {
                Ok(fix) => {
                    let host = fix.host.map_or_else(String::new, |host| format!("; {host}"));
                    // With --dry-run, the output is a patch.
                    if !is_dry {
                        say(format_args!("{place}: fixed{host}"))?;
                    }
                    edits.extend(fix.edits);
                }
                Err(why) => eprintln!("{place}: not fixed: {why}"),
            }
        }
    }
    let patched = apply(text, edits);
    if patched == *text {
        return Ok(());
    }
    let mut changed = source.clone();
    changed.files[0].text.clone_from(&patched);
    Program::new(user_cache(), &changed, InductionVariables::AsWritten)?;
    let name = file.display().to_string();
    if is_dry {
        let diff = similar::TextDiff::from_lines(text.as_str(), &patched);
        let text = diff.unified_diff().header(&format!("a/{name}"), &format!("b/{name}")).to_string();
        return say_text(&text);
    }
    std::fs::write(file, patched).map_err(|error| Failure::Machine(format!("{name}: {error}")))
}

const fn is_fixable(remedy: Remedy) -> bool {
    matches!(remedy, Remedy::SwapAxes | Remedy::PadTile | Remedy::SimdgroupReduction)
}

/// The text with its edits; of edits that overlap, the first.
fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.start, edit.end));
    let (mut patched, mut at) = (String::new(), 0);
    for edit in edits.into_iter().filter(|edit| edit.end <= text.len()) {
        if edit.start >= at {
            patched += &text[at..edit.start];
            patched += &edit.text;
            at = edit.end;
        }
    }
    patched + &text[at..]
}

fn edit(text: &str, all: &[Token<'_>], kernel: &str, advice: &Advice) -> Result<Fix, String> {
    let found = definition(all, kernel).ok_or_else(|| {
        format!("the file has no `kernel void {kernel}(`; a macro or a template may make it")
    })?;
    let object = || advice.object.as_deref().ok_or_else(|| "the variable has no name".to_owned());
    match advice.remedy {
        Remedy::SwapAxes => swap_axes(text, all, &found),
        Remedy::PadTile => pad_tile(all, &found, object()?),
        _ => {
            let line = advice.location.as_ref().map_or(0, |place| place.line);
            reduction(text, all, &found, line)
        }
    }
}

/// Positions and sizes of two dimensions, by their names in parameters' attributes.
const OF_DIMENSIONS: [&str; 7] = [
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "threads_per_grid",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
];

/// Renames each parameter with positions, and declares a variable of the old name with x and y exchanged.
fn swap_axes(text: &str, all: &[Token<'_>], found: &Definition) -> Result<Fix, String> {
    let mut edits = Vec::new();
    let body = all[found.body.start - 1].end();
    for position in positions(all, found) {
        let swizzle = match position.ty.chars().last() {
            _ if !OF_DIMENSIONS.contains(&position.attribute) => continue,
            Some('2') => "yx",
            Some('3') => "yxz",
            _ => return Err(format!("`{}` has one dimension", position.name.text)),
        };
        let (ty, old) = (position.ty, position.name.text);
        let new = format!("{old}_{swizzle}");
        if text.contains(&new) {
            return Err(format!("`{new}` is already a name"));
        }
        edits.push(Edit { start: position.name.start, end: position.name.end(), text: new.clone() });
        edits.push(Edit { start: body, end: body, text: format!("\n    {ty} {old} = {new}.{swizzle};") });
    }
    let host = Some("launch it with x and y of the grid and of the threadgroup exchanged");
    if edits.is_empty() {
        Err("it has no parameter with positions".to_owned())
    } else {
        Ok(Fix { edits, host })
    }
}

/// Lengthens the rows of a two-dimensional variable, if each use has two indices.
fn pad_tile(all: &[Token<'_>], found: &Definition, object: &str) -> Result<Fix, String> {
    let body = found.body.clone();
    let uses: Vec<usize> =
        body.clone().filter(|at| all[*at].text == object && all[*at - 1].text != ".").collect();
    let declared = |at: &&usize| body.start + 1 < **at && all[**at - 2].text == "threadgroup";
    let at = *uses
        .iter()
        .find(declared)
        .ok_or_else(|| format!("`threadgroup TYPE {object}[…][…]` was not found"))?;
    let mut columns = None;
    for index in uses {
        let has_index = |open: usize| all.get(open).is_some_and(|token| token.text == "[");
        let second =
            has_index(index + 1).then(|| closing(all, index + 1)).flatten().filter(|next| has_index(*next));
        let Some(second) = second else {
            return Err(format!("`{object}` is also used without two indices, so that its layout matters"));
        };
        if index == at {
            columns = Some((second, closing(all, second).ok_or("an unclosed bracket")? - 1));
        }
    }
    let (open, close) = columns.ok_or("it has no declaration")?;
    // `[A]`, or `[(A * B) + 1]`.
    let is_one = close == open + 2;
    let (start, end) = (all[open].end(), all[close].start);
    let mut edits = vec![Edit { start: end, end, text: if is_one { " + 1".into() } else { ") + 1".into() } }];
    if !is_one {
        edits.push(Edit { start, end: start, text: "(".into() });
    }
    Ok(Fix { edits, host: None })
}

/// Replaces a loop of halving steps by reductions of simdgroups.
fn reduction(text: &str, all: &[Token<'_>], found: &Definition, line: u32) -> Result<Fix, String> {
    let line_of = |at: usize| text[..all[at].start].matches('\n').count() as u32 + 1;
    let mut starts = found.body.clone().filter(|at| all[*at].text == "for" && line_of(*at) == line);
    let at = starts.next().ok_or("there is no `for` in its line")?;
    let tree = tree(all, at).ok_or(
        "it is not written as `for (uint step = size / 2; step > 0; step /= 2) { if (thread < step) { partial[thread] += partial[thread + step]; } threadgroup_barrier(mem_flags::mem_threadgroup); }`",
    )?;
    let Tree { thread, size, partial, function, end } = tree;
    let positions = positions(all, found);
    let is_position = |name: &str, attributes: &[&str]| {
        positions
            .iter()
            .any(|p| p.name.text == name && attributes.contains(&p.attribute) && !p.ty.ends_with(['2', '3']))
    };
    if !is_position(thread, &["thread_index_in_threadgroup", "thread_position_in_threadgroup"]) {
        return Err(format!("`{thread}` is not a parameter with the thread's index"));
    }
    if !is_position(size, &["threads_per_threadgroup"]) {
        return Err(format!("`{size}` is not a parameter with the threadgroup's size"));
    }
    // What the tree leaves in the other elements is not there afterwards.
    for at in (end..found.body.end).filter(|at| all[*at].text == partial) {
        let first = matches(all, at + 1, "[ 0 ]", &mut [None; 10]).is_some();
        let close = closing(all, at + 1).filter(|_| all[at + 1].text == "[");
        let is_assigned = close.is_some_and(|close| all[close].text == "=" && all[close + 1].text != "=");
        if !first && !is_assigned {
            return Err(format!("elements of `{partial}` other than the first are used behind the loop"));
        }
    }
    let indent: String = {
        let before = &text[..all[at].start];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        before[start..].chars().take_while(|c| c.is_whitespace()).collect()
    };
    let rest = match function {
        "simd_sum" => format!(
            "{partial}_part = 0;\n        if ({thread} < ({size} + 31) / 32) {partial}_part = {partial}[{thread}];"
        ),
        _ => format!("{partial}_part = {partial}[{thread} < ({size} + 31) / 32 ? {thread} : 0];"),
    };
    let new = format!(
        "{{
    auto {partial}_part = {function}({partial}[{thread}]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd_is_first()) {partial}[{thread} / 32] = {partial}_part;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if ({thread} < 32) {{
        {rest}
        {partial}_part = {function}({partial}_part);
        if ({thread} == 0) {partial}[0] = {partial}_part;
    }}
    threadgroup_barrier(mem_flags::mem_threadgroup);
}}"
    );
    let new = new.replace('\n', &format!("\n{indent}"));
    let edits = vec![Edit { start: all[at].start, end: all[end - 1].end(), text: new }];
    Ok(Fix { edits, host: None })
}

/// The names of a tree's parts, and the index behind its last token.
struct Tree<'t> {
    thread: &'t str,
    size: &'t str,
    partial: &'t str,
    function: &'static str,
    end: usize,
}

fn tree<'t>(all: &[Token<'t>], at: usize) -> Option<Tree<'t>> {
    // $0 type, $1 step, $2 size, $3 thread, $4 memory.
    let halved = ["$2 / 2", "$2 > > 1"];
    let steps = ["$1 / = 2", "$1 > > = 1"];
    let conditions = ["$1 > 0", "$1 > = 1", "$1 ! = 0"];
    let bodies = [
        ("simd_sum", "$4 [ $3 ] + = $4 [ $3 + $1 ] ;"),
        ("simd_sum", "$4 [ $3 ] = $4 [ $3 ] + $4 [ $3 + $1 ] ;"),
        ("simd_max", "$4 [ $3 ] = max ( $4 [ $3 ] , $4 [ $3 + $1 ] ) ;"),
        ("simd_max", "$4 [ $3 ] = fmax ( $4 [ $3 ] , $4 [ $3 + $1 ] ) ;"),
        ("simd_min", "$4 [ $3 ] = min ( $4 [ $3 ] , $4 [ $3 + $1 ] ) ;"),
        ("simd_min", "$4 [ $3 ] = fmin ( $4 [ $3 ] , $4 [ $3 + $1 ] ) ;"),
    ];
    let barrier = "threadgroup_barrier ( mem_flags : : mem_threadgroup ) ; }";
    for half in halved {
        for step in steps {
            for condition in conditions {
                for (function, body) in bodies {
                    for (open, close) in [("{", "}"), ("", "")] {
                        let pattern = format!(
                            "for ( $0 $1 = {half} ; {condition} ; {step} ) {{ if ( $3 < $1 ) {open} {body} {close} {barrier}"
                        );
                        let mut names = [None; 10];
                        if let Some(end) = matches(all, at, &pattern, &mut names) {
                            let [_, _, size, thread, partial, ..] = names;
                            return Some(Tree {
                                thread: thread?,
                                size: size?,
                                partial: partial?,
                                function,
                                end,
                            });
                        }
                    }
                }
            }
        }
    }
    None
}
