//! Kernels with grid barriers for Metal, which does not promise that the threadgroups of a grid run at the same time: each becomes a kernel that runs
//! from one grid barrier to the next, and is dispatched until no thread waits at one.
//!
//! The transformation is one of text, because Metal's compiler takes nothing else. A kernel becomes a state machine (`render`): a `switch` over its
//! basic blocks, in a loop. A thread's state is where it goes on, and the variables that are declared around a barrier, which need not be live there;
//! so are parameters that the kernel may change. What the driver cannot read, or whose state it cannot keep, is refused with the line: the kernel's
//! text becomes an `#error`, which holds under the same conditions.

mod declaration;
mod render;
mod statements;
mod tokens;

use std::ops::Range;

use render::Render;
use tokens::{Kind, Text};

/// What a refusal says first.
pub(crate) const NO_GRID_BARRIERS: &str = "grid barriers on Metal, where the driver splits the kernel at them";

/// A kernel that is split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) name: String,
    /// Index of the buffer with the states of the threads, whose first word is 0 at the start.
    pub(crate) states: u32,
    /// Index of the word that is set if a thread waits at a barrier.
    pub(crate) waits: u32,
    /// Number of dimensions that the grid may have.
    pub(crate) dimensions: u32,
}

/// Why a kernel is not split, and at which token.
#[derive(Debug)]
struct Refusal {
    token: usize,
    why: String,
}

impl Refusal {
    fn new(token: usize, why: impl Into<String>) -> Self {
        Self { token, why: why.into() }
    }
}

/// Splits the kernels of a text that have grid barriers.
pub(crate) fn split(text: &str) -> (String, Vec<Split>) {
    let is_of_grid = |word: &str| statements::is_of_barrier(word) || statements::is_group(word);
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    if !words.into_iter().any(is_of_grid) {
        return (text.to_owned(), Vec::new());
    }
    let text = Text::of(text);
    let (mut out, mut end, mut all) = (String::new(), 0, Vec::new());
    let mut at = 0;
    while at < text.tokens.len() {
        let has_barrier =
            |function: &Function| function.body.clone().any(|at| statements::is_of_barrier(text.word(at)));
        let Some(function) = Function::at(&text, at).filter(has_barrier) else {
            if is_of_grid(text.word(at)) && text.are(at.saturating_sub(3), &["elinvar", ":", ":"]) {
                let why = match statements::is_group(text.word(at)) {
                    true => "a group of threads as an object",
                    false => "it is in a function that is no kernel",
                };
                let refusal = Refusal::new(at, why);
                let token = &text.tokens[at].at;
                out.push_str(&text.text[end..token.start]);
                out.push_str(&error(&text, &refusal));
                end = token.end;
            }
            at += 1;
            continue;
        };
        let (first, last) = (&text.tokens[function.head.start].at, &text.tokens[function.body.end - 1].at);
        out.push_str(&text.text[end..first.start]);
        match function.split(&text) {
            Ok((code, split)) => {
                out.push_str(&code);
                all.push(split);
            }
            Err(refusal) => out.push_str(&error(&text, &refusal)),
        }
        let (file, line) = text.place(function.body.end - 1);
        out.push_str(&format!("\n#line {line} \"{file}\"\n"));
        end = last.end;
        at = function.body.end;
    }
    out.push_str(&text.text[end..]);
    (out, all)
}

fn error(text: &Text<'_>, refusal: &Refusal) -> String {
    let (file, line) = text.place(refusal.token);
    let why = refusal.why.replace('"', "'");
    format!("\n#line {line} \"{file}\"\n#error \"{NO_GRID_BARRIERS}: {why}\"\n#line {line} \"{file}\"\n")
}

/// A kernel's tokens.
struct Function {
    head: Range<usize>,
    name: usize,
    params: Range<usize>,
    body: Range<usize>,
}

/// A parameter.
struct Param {
    range: Range<usize>,
    ty: Range<usize>,
    name: usize,
    attribute: String,
}

impl Function {
    /// The kernel whose word `kernel` is at a token.
    fn at(text: &Text<'_>, at: usize) -> Option<Self> {
        if text.word(at) != "kernel" || text.tokens[at].kind != Kind::Word {
            return None;
        }
        let void = (at..at + 8).find(|at| text.word(*at) == "void")?;
        let (name, open) = (void + 1, void + 2);
        if text.word(open) != "(" {
            return None;
        }
        let close = text.behind(open)?;
        let end = text.behind(close).filter(|_| text.word(close) == "{")?;
        let is_end = |at: usize| {
            matches!(text.word(at), ";" | "}") || text.tokens[at].kind == Kind::Directive
        };
        let first = (0..at).rev().find(|at| is_end(*at)).map_or(0, |at| at + 1);
        Some(Self { head: first..open, name, params: open + 1..close - 1, body: close..end })
    }

    fn params(&self, text: &Text<'_>) -> Result<Vec<Param>, Refusal> {
        let (mut all, mut first, mut at) = (Vec::new(), self.params.start, self.params.start);
        while first < self.params.end {
            while at < self.params.end && text.word(at) != "," {
                at = if matches!(text.word(at), "(" | "[" | "{") {
                    text.behind(at).ok_or_else(|| Refusal::new(first, "a bracket is not closed"))?
                } else {
                    at + 1
                };
            }
            let range = first..at;
            if range.clone().any(|at| text.tokens[at].kind == Kind::Directive) {
                return Err(Refusal::new(first, "a directive of the preprocessor in the kernel"));
            }
            let attribute = range.clone().find(|at| text.are(*at, &["[", "["]));
            let last = attribute.unwrap_or(at);
            let name = last.checked_sub(1).filter(|name| *name > first);
            let name = name.ok_or_else(|| Refusal::new(first, "a parameter that the driver cannot read"))?;
            let attribute = attribute.map_or(String::new(), |at| text.of_range(&(at..range.end)).to_owned());
            all.push(Param { range, ty: first..name, name, attribute });
            at += 1;
            first = at;
        }
        Ok(all)
    }

    fn split(&self, text: &Text<'_>) -> Result<(String, Split), Refusal> {
        let refuse = |what: &str| Err(Refusal::new(self.head.start, what));
        if self.head.clone().any(|at| text.word(at) == "template") {
            return refuse("a template");
        }
        let body = statements::statement(text, self.body.start)?;
        if let Some(at) = self.body.clone().find(|at| text.word(*at) == "threadgroup") {
            return Err(Refusal::new(at, "threadgroup memory, which is not kept"));
        }
        let params = self.params(text)?;
        if let Some(param) = params.iter().find(|param| param.range.clone().any(|at| text.word(at) == "threadgroup")) {
            return Err(Refusal::new(param.name, "threadgroup memory, which is not kept"));
        }
        let mut free = (0..31).rev().filter(|index| {
            let taken = format!("buffer({index})");
            !params.iter().any(|param| param.attribute.replace(' ', "").contains(&taken))
        });
        let (Some(waits), Some(states)) = (free.next(), free.next()) else { return refuse("31 buffers") };
        let name = text.word(self.name);
        let mut render = Render::new(text);
        let mut begin = String::new();
        for param in &params {
            if text.word(param.name - 1) == "&" || self.is_only_read(text, param) {
                continue;
            }
            let words = param.ty.clone().map(|at| text.word(at));
            let is_pointer = words.clone().any(|word| word == "*");
            let ty: Vec<&str> = words.filter(|word| is_pointer || *word != "const").collect();
            let of = text.word(param.name);
            let new = render.keep(ty.join(" ").replace(": :", "::"), of, None);
            begin.push_str(&format!("{new} = {of};\n"));
        }
        let (members, code) = render.finish(&body, &begin)?;
        let (more, index, dimensions) = index(text, &params)?;
        let head = text.of_range(&self.head);
        let given = text.of_range(&self.params);
        let comma = if given.is_empty() { "" } else { ", " };
        let (file, line) = text.place(self.head.start);
        let place = format!("\n#line {line} \"{file}\"\n");
        let code = format!(
            "struct state_in_memory_{name} {{\nuint at;\n{members}}};{place}{head}({given}{comma}device state_in_memory_{name}* states_in_memory [[buffer({states})]], \
             device metal::atomic_uint* waits_in_memory [[buffer({waits})]]{more}) {{\n\
             device state_in_memory_{name}& state_in_memory = states_in_memory[{index}];\n{code}}}"
        );
        Ok((code, Split { name: name.to_owned(), states, waits, dimensions }))
    }

    /// Whether a parameter is certainly not changed: it is constant, or each use is an operand of an arithmetic operator or a comparison, or an
    /// element of what it points to.
    fn is_only_read(&self, text: &Text<'_>, param: &Param) -> bool {
        let name = text.word(param.name);
        let is_pointer = text.word(param.name - 1) == "*";
        let mut uses = self.body.clone().filter(|at| text.word(*at) == name);
        uses.all(|at| {
            let [before, next, behind] = [at.wrapping_sub(1), at + 1, at + 2].map(|at| text.word(at));
            let is_operand = matches!(next, "+" | "-" | "*" | "/" | "%" | "^" | "|" | "<" | ">" | "?" | ":" | "]" | ";")
                && behind != "="
                && !(matches!(next, "+" | "-") && behind == next)
                && !(matches!(next, "<" | ">") && behind == next && text.word(at + 3) == "=");
            let is_element = next == "[" && is_pointer;
            let is_compared = next == "=" && behind == "=";
            let is_safe = !matches!(before, "&")
                && !(matches!(before, "+" | "-") && text.word(at.wrapping_sub(2)) == before);
            is_safe && (is_operand || is_element || is_compared)
        })
    }
}

/// Names of attributes whose parameters must have one number of components.
const POSITIONS: [&str; 8] = [
    "thread_position_in_grid",
    "threads_per_grid",
    "thread_position_in_threadgroup",
    "threadgroup_position_in_grid",
    "threadgroups_per_grid",
    "threads_per_threadgroup",
    "dispatch_threads_per_threadgroup",
    "grid_size",
];

/// More parameters, a thread's index in the grid, and the number of dimensions for which it is right.
fn index(text: &Text<'_>, params: &[Param]) -> Result<(String, String, u32), Refusal> {
    let of = |attribute: &str| params.iter().find(|param| attribute_of(param) == attribute);
    let components = |param: &Param| match text.word(param.name - 1).chars().last() {
        Some(last @ '2'..='4') => last as u32 - '0' as u32,
        _ => 1,
    };
    let used = params.iter().filter(|param| POSITIONS.contains(&attribute_of(param)));
    let dimensions = used.map(components).max().unwrap_or(3);
    let ty = if dimensions == 1 { "uint".to_owned() } else { format!("uint{dimensions}") };
    let mut more = String::new();
    let mut names = [String::new(), String::new()];
    let wanted = [("thread_position_in_grid", "place_in_memory"), ("threads_per_grid", "size_in_memory")];
    for ((attribute, own), name) in wanted.into_iter().zip(&mut names).take(if dimensions == 1 { 1 } else { 2 }) {
        match of(attribute) {
            Some(param) if components(param) == dimensions => *name = text.word(param.name).to_owned(),
            Some(param) => return Err(Refusal::new(param.name, "positions with different numbers of components")),
            None => {
                *name = own.to_owned();
                more.push_str(&format!(", {ty} {own} [[{attribute}]]"));
            }
        }
    }
    let [at, size] = names;
    let index = match dimensions {
        1 => at,
        2 => format!("uint({at}.y) * {size}.x + {at}.x"),
        _ => format!("(uint({at}.z) * {size}.y + {at}.y) * {size}.x + {at}.x"),
    };
    Ok((more, index, dimensions))
}

fn attribute_of(param: &Param) -> &str {
    param.attribute.trim_matches(|c: char| matches!(c, '[' | ']' | ' '))
}
