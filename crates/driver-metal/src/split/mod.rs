//! Kernels with grid barriers for Metal, which does not promise that the threadgroups of a grid run at the same time: each becomes a kernel that runs
//! from one grid barrier to the next, and is dispatched until no thread waits at one.
//!
//! The transformation is one of text, because Metal's compiler takes nothing else. A kernel becomes a state machine (`render`): a `switch` over its
//! basic blocks, in a loop. A thread's state is where it goes on, and the variables that are declared around a barrier, which need not be live there;
//! so are parameters that the kernel may change. What the driver cannot read, or whose state it cannot keep, is refused with the line: the kernel's
//! text becomes an `#error`, which holds under the same conditions.
//!
//! A macro that hides a barrier is expanded before (`macros`). Kernels with groups of threads as objects get parameters for the positions (`groups`).

mod declaration;
mod groups;
mod macros;
mod render;
mod statements;
mod tokens;

use std::ops::Range;

use render::Render;
use tokens::{Kind, Text};

/// What a refusal says first.
pub(crate) const NO_GRID_BARRIERS: &str =
    "grid barriers on Metal, where the driver splits the kernel at them";

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

/// Whether a text has grid barriers, or groups of threads as objects.
fn has_of_grid(text: &str) -> bool {
    let mut words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.any(|word| statements::is_of_barrier(word) || statements::is_group(word))
}

/// Splits the kernels of a text that have grid barriers.
pub(crate) fn split(text: &str) -> (String, Vec<Split>) {
    if !has_of_grid(text) {
        return (text.to_owned(), Vec::new());
    }
    let written = Text::of(text);
    let hidden = macros::hidden(&written);
    let text = macros::expanded(&written, &hidden);
    let text = Text::of(&text);
    let is_word = |at: usize| text.tokens[at].kind == Kind::Word;
    let hides = |at: usize| hidden.get(text.word(at)).filter(|_| is_word(at));
    let (mut out, mut end, mut all) = (String::new(), 0, Vec::new());
    let mut at = 0;
    while at < text.tokens.len() {
        let is_of_grid = |at: usize| {
            let word = text.word(at);
            statements::is_of_barrier(word) || statements::is_group(word) || hides(at).is_some()
        };
        let has_any = |function: &Function| function.body.clone().any(is_of_grid);
        let Some(function) = Function::at(&text, at).filter(has_any) else {
            // The header of groups is in front of the text.
            let is_qualified = text.are(at.saturating_sub(3), &["elinvar", ":", ":"]);
            if hides(at).is_some() || is_qualified && is_of_grid(at) {
                let why = match (hides(at), statements::is_group(text.word(at))) {
                    (Some(found), _) => {
                        format!(
                            "the {} in the macro {} is in a function that is no kernel",
                            found.what,
                            text.word(at)
                        )
                    }
                    (None, true) => {
                        "a group of threads as an object in a function that is no kernel".to_owned()
                    }
                    (None, false) => "it is in a function that is no kernel".to_owned(),
                };
                let token = &text.tokens[at].at;
                out.push_str(&text.text[end..token.start]);
                out.push_str(&error(&text, &Refusal::new(at, why)));
                end = token.end;
            }
            at += 1;
            continue;
        };
        let (first, last) = (&text.tokens[function.head.start].at, &text.tokens[function.body.end - 1].at);
        out.push_str(&text.text[end..first.start]);
        let name = text.word(function.name);
        let hidden_at = function.body.clone().find_map(|at| Some((at, hides(at)?)));
        let made = match hidden_at {
            Some((at, found)) => {
                let (what, macro_name) = (found.what, text.word(at));
                let why = found.refused.unwrap_or("is not invoked");
                let why = format!("kernel {name}: the {what} in the macro {macro_name}, which {why}");
                Err(Refusal::new(at, why))
            }
            None => function.transformed(&text),
        };
        match made {
            Ok((code, split)) => {
                out.push_str(&code);
                all.extend(split);
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
        let is_end =
            |at: usize| matches!(text.word(at), ";" | "}") || text.tokens[at].kind == Kind::Directive;
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

    /// The kernel's new text, and how it was split at grid barriers, if it has any.
    fn transformed(&self, text: &Text<'_>) -> Result<(String, Option<Split>), Refusal> {
        let has_barrier = self.body.clone().any(|at| statements::is_of_barrier(text.word(at)));
        let group = self.body.clone().find(|at| statements::is_group(text.word(*at)));
        match group {
            Some(at) if has_barrier => {
                Err(Refusal::new(at, "a group of threads as an object, in a kernel with grid barriers"))
            }
            Some(_) => Ok((groups::positioned(text, self)?, None)),
            None => self.split(text).map(|(code, split)| (code, Some(split))),
        }
    }

    fn split(&self, text: &Text<'_>) -> Result<(String, Split), Refusal> {
        let refuse = |what: &str| Err(Refusal::new(self.head.start, what));
        if self.head.clone().any(|at| text.word(at) == "template") {
            return refuse("a template");
        }
        let macros = macros(text);
        if let Some(at) = self.body.clone().find(|at| macros.contains(&text.word(*at))) {
            return Err(Refusal::new(at, "a macro with statements"));
        }
        let body = statements::statement(text, self.body.start)?;
        if let Some(at) = self.body.clone().find(|at| text.word(*at) == "threadgroup") {
            return Err(Refusal::new(at, "threadgroup memory, which is not kept"));
        }
        let params = self.params(text)?;
        if let Some(param) =
            params.iter().find(|param| param.range.clone().any(|at| text.word(at) == "threadgroup"))
        {
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
            let is_operand =
                matches!(next, "+" | "-" | "*" | "/" | "%" | "^" | "|" | "<" | ">" | "?" | ":" | "]" | ";")
                    && behind != "="
                    && !(matches!(next, "+" | "-") && behind == next)
                    && !(matches!(next, "<" | ">") && behind == next && text.word(at + 3) == "=");
            let is_element = next == "[" && is_pointer;
            let is_compared = next == "=" && behind == "=";
            let is_stepped = matches!(before, "+" | "-") && text.word(at.wrapping_sub(2)) == before;
            let is_safe = before != "&" && !is_stepped;
            is_safe && (is_operand || is_element || is_compared)
        })
    }
}

/// The macros whose text may have statements or barriers.
fn macros<'t>(text: &Text<'t>) -> Vec<&'t str> {
    let directives = text.tokens.iter().filter(|token| token.kind == Kind::Directive);
    let defined = directives.filter_map(|token| {
        let rest = text.text[token.at.clone()].trim_start_matches('#').trim_start().strip_prefix("define")?;
        let rest = rest.trim_start();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        Some(rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len())))
    });
    let has_statements = |(_, value): &(&str, &str)| {
        let words = ["break", "continue", "return", "goto", "grid_barrier", "this_grid"];
        value.contains([';', '{', '}']) || words.iter().any(|word| value.contains(word))
    };
    defined.filter(has_statements).map(|(name, _)| name).collect()
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
    let components = |param: &Param| components(text, param);
    let used = params.iter().filter(|param| POSITIONS.contains(&attribute_of(param)));
    let dimensions = used.map(components).max().unwrap_or(3);
    let ty = if dimensions == 1 { "uint".to_owned() } else { format!("uint{dimensions}") };
    let mut more = String::new();
    let mut names = [String::new(), String::new()];
    let wanted = [("thread_position_in_grid", "place_in_memory"), ("threads_per_grid", "size_in_memory")];
    for ((attribute, own), name) in
        wanted.into_iter().zip(&mut names).take(if dimensions == 1 { 1 } else { 2 })
    {
        match of(attribute) {
            Some(param) if components(param) == dimensions => *name = text.word(param.name).to_owned(),
            Some(param) => {
                return Err(Refusal::new(param.name, "positions with different numbers of components"));
            }
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

/// Number of components of a parameter.
fn components(text: &Text<'_>, param: &Param) -> u32 {
    match text.word(param.name - 1).chars().last() {
        Some(last @ '2'..='4') => last as u32 - '0' as u32,
        _ => 1,
    }
}

fn attribute_of(param: &Param) -> &str {
    param.attribute.trim_matches(|c: char| matches!(c, '[' | ']' | ' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The refusal of a kernel with this body, with its line; the body begins in line 2.
    fn refusal(params: &str, body: &str) -> String {
        let text = format!("#line 1 \"a.metal\"\nkernel void k({params}) {{\n{body}\n}}\nvoid behind();\n");
        let (out, all) = split(&text);
        assert!(all.is_empty() && out.ends_with("void behind();\n"), "{out}");
        let at = out.find("#error \"").expect(&out);
        let line = out[..at].trim_end().lines().last().unwrap_or_default();
        let why = out[at..].lines().next().unwrap_or_default().trim_start_matches("#error \"");
        let why = why.strip_prefix(NO_GRID_BARRIERS).expect("the prefix").trim_start_matches(": ");
        format!("{}: {}", line.split(' ').nth(1).unwrap_or_default(), why.trim_end_matches('"'))
    }

    const PARAMS: &str = "device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]";
    const BARRIER: &str = "elinvar::grid_barrier();";

    #[test]
    fn what_is_not_kept_is_refused_with_the_line() {
        let of = |body: &str| refusal(PARAMS, &format!("x[i] = 1;\n{body}\n{BARRIER}\nx[i] = 2;"));
        assert_eq!(of("threadgroup uint part[32];"), "3: threadgroup memory, which is not kept");
        assert_eq!(
            of("uint a = 1; thread uint* p = &a;"),
            "3: a pointer to private memory, which is not kept at a grid barrier"
        );
        assert_eq!(of("uint a; thread uint& r = a;"), "3: a reference, which is not kept at a grid barrier");
        assert_eq!(of("auto v = x[i];"), "3: `auto`");
        assert_eq!(of("uint n = 3; uint t[n];"), "3: an array whose size is a variable");
        assert_eq!(
            of("uint t[2] = {1, 2};"),
            "3: an array with more than one dimension or with initial values"
        );
        assert_eq!(of("uint t[2][2];"), "3: an array with more than one dimension or with initial values");
        assert_eq!(of("#if A\nx[i] = 3;\n#endif"), "3: a directive of the preprocessor in the kernel");
        assert_eq!(of("auto f = [](uint a) { return a; };"), "3: `auto`");
        assert_eq!(
            of(&format!("switch (x[0]) {{ case 0: {BARRIER} }}")),
            "3: a grid barrier or `continue` in a switch"
        );
        assert_eq!(of(&format!("for (uint v : x) {BARRIER}")), "3: a loop over a range");
        assert_eq!(
            of("uint n = elinvar::this_grid().size();"),
            "3: a grid barrier that is no statement of its own, or another function of `this_grid`"
        );
        let text =
            format!("#define LEAVE() break\nkernel void k({PARAMS}) {{ for (;;) {{ LEAVE(); {BARRIER} }} }}");
        assert!(split(&text).0.contains("a macro with statements"));
        let shared = refusal("threadgroup uint* t [[threadgroup(0)]]", BARRIER);
        assert_eq!(shared, "1: threadgroup memory, which is not kept");
    }

    #[test]
    fn other_functions_and_groups_are_refused() {
        let (out, all) =
            split("#line 7 \"f.metal\"\nvoid f() { elinvar::grid_barrier(); }\nkernel void k() { f(); }");
        assert!(
            all.is_empty() && out.contains("#line 7 \"f.metal\"\n#error \"grid barriers on Metal"),
            "{out}"
        );
        let (out, _) = split("uint f() { return elinvar::this_tile<8>().size(); }");
        assert!(out.contains("#error") && out.contains("a group of threads as an object"), "{out}");
        let both = refusal(PARAMS, &format!("{BARRIER} x[i] = elinvar::this_tile<8>().size();"));
        assert_eq!(both, "2: a group of threads as an object, in a kernel with grid barriers");
    }

    #[test]
    fn groups_are_given_positions() {
        let kernel = |params: &str, body: &str| split(&format!("kernel void k({params}) {{ {body} }}\n")).0;
        let out = kernel("", "elinvar::this_tile<8>().sync();");
        assert_eq!(
            out,
            "kernel void k(uint given_thread_index_in_simdgroup [[thread_index_in_simdgroup]], uint \
             given_simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]) { const uint \
             own_thread_index_in_simdgroup = uint(given_thread_index_in_simdgroup); const uint \
             own_simdgroup_index_in_threadgroup = uint(given_simdgroup_index_in_threadgroup); \
             elinvar::this_tile<8>(own_thread_index_in_simdgroup, own_simdgroup_index_in_threadgroup).sync(); }\n\
             #line 1 \"\"\n\n"
        );
        // A kernel has one parameter for an attribute, and positions with one number of components.
        let out = kernel(
            "uint2 at [[thread_position_in_grid]], ushort r [[thread_index_in_threadgroup]], uint2 n [[threads_per_threadgroup]]",
            "{ uint r = elinvar::this_threadgroup().size(); }",
        );
        assert!(out.contains("own_thread_index_in_threadgroup = uint(r);"), "{out}");
        assert!(out.contains("own_threads_per_threadgroup = uint3(n.x, n.y, 1);"), "{out}");
        assert!(out.contains(", uint2 given_threadgroup_position_in_grid [["), "{out}");
        let position = "uint3(given_threadgroup_position_in_grid.x, given_threadgroup_position_in_grid.y, 0)";
        assert!(out.contains(position) && !out.contains("simdgroup"), "{out}");
        let out = kernel("uint i [[thread_position_in_grid]]", "elinvar::this_threadgroup().sync();");
        assert!(out.contains("uint3(given_threads_per_threadgroup, 1, 1)"), "{out}");
        assert!(out.contains("uint3(given_threadgroup_position_in_grid, 0, 0)"), "{out}");
        let out = kernel("", "auto f = elinvar::this_threadgroup;");
        assert!(out.contains("#error") && out.contains("in another way than by a call"), "{out}");
    }

    /// A text with macros in front of a kernel, from line 1 on.
    fn with_macros(macros: &str, body: &str) -> (String, Vec<Split>) {
        split(&format!(
            "#line 1 \"a.metal\"\n{macros}\nkernel void k({PARAMS}) {{\nx[i] = 1;\n{body}\nx[i] = 2;\n}}\n"
        ))
    }

    #[test]
    fn barriers_in_macros_are_expanded() {
        for (macros, body) in [
            ("#define SYNC elinvar::grid_barrier()", "SYNC;"),
            ("#define SYNC() elinvar::grid_barrier(); // waits", "SYNC()"),
            ("#define SYNC( ) elinvar::this_grid().sync()", "SYNC();"),
            ("# define A() B\n#define B elinvar::grid_barrier()", "A();"),
            ("#define SYNC() do { elinvar:: \\\n grid_barrier(); } while (0)", "if (x[0]) SYNC();"),
            ("#define A B;\n#define B A elinvar::grid_barrier()\n#undef C", "{ B; }"),
        ] {
            let (out, all) = with_macros(macros, body);
            // The last one is not within itself.
            assert_eq!(all.len(), usize::from(!macros.contains("#undef")), "{out}");
            let is_split = out.contains("state_in_memory.at = ");
            assert!(is_split || out.contains("#error") && macros.contains("#undef"), "{out}");
            assert!(out.starts_with(&format!("#line 1 \"a.metal\"\n{macros}\n")), "{out}");
        }
        let groups = split("#define TILE elinvar::this_tile<8>()\nkernel void k() { TILE.sync(); }").0;
        assert!(groups.contains("elinvar::this_tile<8>(own_thread_index_in_simdgroup"), "{groups}");
    }

    #[test]
    fn barriers_in_macros_that_are_not_expanded_are_refused_with_the_line() {
        let of = |macros: &str, body: &str| {
            let (out, all) = with_macros(macros, body);
            assert!(all.is_empty(), "{out}");
            let at = out.find("#error \"").expect(&out);
            let line = out[..at].trim_end().lines().last().unwrap_or_default().to_owned();
            let why = out[at..].lines().next().unwrap_or_default().trim_start_matches("#error \"");
            let why = why.strip_prefix(NO_GRID_BARRIERS).expect("the prefix").trim_end_matches('"');
            format!("{line}{why}")
        };
        assert_eq!(
            of("#define SYNC(n) elinvar::grid_barrier()", "SYNC(1);"),
            "#line 4 \"a.metal\": kernel k: the grid barrier in the macro SYNC, which has parameters"
        );
        assert_eq!(
            of("#define SYNC\n#define SYNC elinvar::grid_barrier()", "SYNC;"),
            "#line 5 \"a.metal\": kernel k: the grid barrier in the macro SYNC, which has several definitions"
        );
        assert_eq!(
            of(
                "#define A(f) f()\n#define SYNC A(elinvar::grid_barrier)",
                "\n\nA(elinvar::grid_barrier); SYNC;"
            ),
            "#line 7 \"a.metal\": a grid barrier within an expression"
        );
        assert_eq!(
            of("#define SYNC() elinvar::grid_barrier()", "auto f = SYNC;"),
            "#line 4 \"a.metal\": kernel k: the grid barrier in the macro SYNC, which is not invoked"
        );
        assert_eq!(
            of("#define SYNC() elinvar::grid_barrier()\nvoid f() { SYNC(); }", "f();"),
            "#line 2 \"a.metal\": the grid barrier in the macro SYNC is in a function that is no kernel"
        );
    }

    #[test]
    fn other_text_stays() {
        for text in
            ["kernel void k(device uint* x) { x[0] = 1; }", "// grid_barriers\nuint my_grid_barrier_count;"]
        {
            assert_eq!(split(text), (text.to_owned(), Vec::new()));
        }
    }

    #[test]
    fn a_kernel_has_more_buffers_and_positions() {
        let body = format!("uint a = i; {BARRIER} x[i] = a;");
        let one = |params: &str| {
            let (out, all) = split(&format!("kernel void k({params}) {{ {body} }}"));
            (out, all.into_iter().next().expect("a kernel that is split"))
        };
        let (out, found) = one("device uint* x [[buffer(30)]], uint i [[thread_position_in_grid]]");
        assert_eq!(found, Split { name: "k".into(), states: 28, waits: 29, dimensions: 1 });
        assert!(out.contains("states_in_memory[i]") && out.contains("[[buffer(28)]]"), "{out}");
        let (out, found) =
            one("device uint* x, uint i [[thread_index_in_simdgroup]], uint2 s [[threads_per_grid]]");
        assert_eq!((found.dimensions, found.waits), (2, 30));
        assert!(out.contains("uint2 place_in_memory [[thread_position_in_grid]]"), "{out}");
        let (out, found) = one("device uint* x, uint i [[thread_index_in_simdgroup]]");
        assert_eq!(found.dimensions, 3);
        assert!(out.contains("uint3 size_in_memory [[threads_per_grid]]"), "{out}");
    }
}
