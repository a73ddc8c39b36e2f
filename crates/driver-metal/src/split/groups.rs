//! Groups of threads as objects (`<elinvar/grid>`): the functions that make them are given the thread's positions, which a kernel gets as further
//! parameters.

use super::statements::is_group;
use super::tokens::Text;
use super::{Function, POSITIONS, Refusal, attribute_of, components};

/// What a tile needs.
const LANES: [&str; 2] = ["thread_index_in_simdgroup", "simdgroup_index_in_threadgroup"];
/// What the threads of a threadgroup need; all but the first have a component for each dimension.
const THREADGROUP: [&str; 4] = [
    "thread_index_in_threadgroup",
    "threads_per_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
];

/// A kernel whose groups have positions.
pub(super) fn positioned(text: &Text<'_>, function: &Function) -> Result<String, Refusal> {
    let params = function.params(text)?;
    let used = params.iter().filter(|param| POSITIONS.contains(&attribute_of(param)));
    let dimensions = used.map(|param| components(text, param)).max().unwrap_or(3);
    let uses = |word: &str| function.body.clone().any(|at| text.word(at) == word);
    let has_threadgroup = uses("this_threadgroup");
    let has_tiles = uses("this_simdgroup") || uses("this_tile");
    let lanes = LANES.iter().filter(|_| has_tiles);
    let (mut more, mut copies) = (String::new(), String::new());
    for attribute in lanes.chain(THREADGROUP.iter().filter(|_| has_threadgroup)) {
        let is_scalar = attribute.starts_with("thread_index") || attribute.starts_with("simdgroup");
        let components = if is_scalar { 1 } else { dimensions };
        let ty = if components == 1 { "uint".to_owned() } else { format!("uint{components}") };
        let name = match params.iter().find(|param| attribute_of(param) == *attribute) {
            Some(param) => text.word(param.name).to_owned(),
            None => {
                more.push_str(&format!(", {ty} given_{attribute} [[{attribute}]]"));
                format!("given_{attribute}")
            }
        };
        let own = if is_scalar { "uint" } else { "uint3" };
        let value = match components {
            1 if is_scalar => format!("uint({name})"),
            1 => format!("uint3({name}, {}, {})", last(attribute), last(attribute)),
            2 => format!("uint3({name}.x, {name}.y, {})", last(attribute)),
            _ => format!("uint3({name})"),
        };
        copies.push_str(&format!(" const {own} own_{attribute} = {value};"));
    }
    let given = text.of_range(&function.params);
    let more = if given.is_empty() { more.trim_start_matches(", ") } else { &more };
    let open = &text.tokens[function.body.start].at;
    let first = &text.tokens[function.head.start].at;
    let params_end = text.tokens[function.params.end].at.start;
    let mut out =
        format!("{}{more}{}{copies}", &text.text[first.start..params_end], &text.text[params_end..open.end]);
    let (mut end, mut at) = (open.end, function.body.start + 1);
    while at < function.body.end {
        if !is_group(text.word(at)) {
            at += 1;
            continue;
        }
        let mut open = at + 1;
        if text.word(at) == "this_tile" {
            while open < function.body.end && !matches!(text.word(open), "(" | ";") {
                open += 1;
            }
        }
        if !text.are(open, &["(", ")"]) {
            return Err(Refusal::new(at, "a group of threads that is made in another way than by a call"));
        }
        let names: &[&str] = if text.word(at) == "this_threadgroup" { &THREADGROUP } else { &LANES };
        let names: Vec<String> = names.iter().map(|name| format!("own_{name}")).collect();
        out.push_str(&text.text[end..text.tokens[open].at.end]);
        out.push_str(&names.join(", "));
        end = text.tokens[open + 1].at.start;
        at = open + 2;
    }
    out.push_str(&text.text[end..text.tokens[function.body.end - 1].at.end]);
    Ok(out)
}

/// The component of an attribute along a dimension that the kernel does not have.
fn last(attribute: &str) -> u32 {
    u32::from(attribute != "threadgroup_position_in_grid")
}
