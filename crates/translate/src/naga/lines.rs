//! Lines of the source in MSL that naga writes.
//!
//! naga's writer keeps no places. Before each statement of the module, [`mark`] stores the line of the statement in a variable that nothing
//! reads; [`replace`] finds these stores in the text, removes them, and writes `#line` directives for what is between them.

use ::naga::{
    Arena, Block, Expression, Function, Handle, Literal, LocalVariable, Module, Scalar, Span, Statement,
    Type, TypeInner,
};

/// Name of the variable.
const MARK: &str = "elinvar_source_line";

/// Lines of the functions in the order in which they are written, with their names.
pub(super) struct Functions(Vec<(String, Option<u32>)>);

/// Stores lines before all statements.
pub(super) fn mark(module: &mut Module, source: &str) -> Functions {
    let lines = Lines::new(source);
    let uint = Type { name: None, inner: TypeInner::Scalar(Scalar::U32) };
    let uint = module.types.insert(uint, Span::UNDEFINED);
    let mut functions = Vec::new();
    for (_, function, span) in module.functions.iter_mut_span() {
        functions.push((function.name.clone().unwrap_or_default(), lines.of(*span)));
        mark_function(function, uint, &lines);
    }
    for entry in &mut module.entry_points {
        mark_function(&mut entry.function, uint, &lines);
        functions.push((entry.name.clone(), lines.declaration(&entry.name)));
    }
    Functions(functions)
}

fn mark_function(function: &mut Function, uint: Handle<Type>, lines: &Lines<'_>) {
    let variable = LocalVariable { name: Some(MARK.into()), ty: uint, init: None };
    let variable = function.local_variables.append(variable, Span::UNDEFINED);
    let pointer = function.expressions.append(Expression::LocalVariable(variable), Span::UNDEFINED);
    let body = std::mem::take(&mut function.body);
    function.body = mark_block(body, pointer, &mut function.expressions, lines);
}

fn mark_block(
    block: Block,
    pointer: Handle<Expression>,
    expressions: &mut Arena<Expression>,
    lines: &Lines<'_>,
) -> Block {
    let mut marked = Block::new();
    for (mut statement, span) in block.span_into_iter() {
        let mut inner = |block: &mut Block| {
            *block = mark_block(std::mem::take(block), pointer, expressions, lines);
        };
        match &mut statement {
            Statement::Block(block) => inner(block),
            Statement::If { accept, reject, .. } => {
                inner(accept);
                inner(reject);
            }
            Statement::Switch { cases, .. } => cases.iter_mut().for_each(|case| inner(&mut case.body)),
            Statement::Loop { body, continuing, .. } => {
                inner(body);
                inner(continuing);
            }
            _ => {}
        }
        let line = match &statement {
            // What it evaluates, whose spans begin where its own may not.
            Statement::Emit(range) => range.clone().find_map(|handle| lines.of(expressions.get_span(handle))),
            _ => None,
        };
        if let Some(line) = line.or_else(|| lines.of(span)) {
            let value = expressions.append(Expression::Literal(Literal::U32(line)), Span::UNDEFINED);
            marked.push(Statement::Store { pointer, value }, span);
        }
        marked.push(statement, span);
    }
    marked
}

/// The text without the stores, with `#line` directives.
pub(super) fn replace(text: &str, file: &str, functions: &Functions) -> String {
    let file = file.replace('\\', "\\\\").replace('"', "\\\"");
    let mut out = String::with_capacity(text.len());
    let mut functions = functions.0.iter().peekable();
    // The line of what follows; of what the next line of the output is; and whether the output is one of the source.
    let (mut current, mut next, mut is_source) = (None, None, false);
    for row in text.lines() {
        if row.trim_start().starts_with(&format!("uint {MARK}")) {
            continue;
        }
        if let Some(line) = stored(row) {
            current = Some(line);
            continue;
        }
        if let Some(name) = function_name(row) {
            let is_next = functions.peek().is_some_and(|(known, _)| name.starts_with(known.as_str()));
            current = if is_next { functions.next().and_then(|(_, line)| *line) } else { None };
        }
        // Parameters, and ends of blocks, go on where they are.
        let goes_on = row.trim_start().starts_with(['}', ')', ',']) || row.ends_with("]]");
        match current {
            Some(line) if next != Some(line) && !goes_on => {
                out.push_str(&format!("#line {line} \"{file}\"\n"));
                (next, is_source) = (Some(line), true);
            }
            None if is_source && !row.is_empty() => {
                out.push_str("#line 1 \"naga\"\n");
                (next, is_source) = (None, false);
            }
            _ => {}
        }
        out.push_str(row);
        out.push('\n');
        next = next.map(|line| line + 1);
        if row == "}" || row == "};" {
            current = None;
        }
    }
    out
}

/// The line that a row stores.
fn stored(row: &str) -> Option<u32> {
    let rest = row.trim_start().strip_prefix(MARK)?;
    let (suffix, value) = rest.split_once(" = ")?;
    let is_suffix = suffix.chars().all(|c| c == '_' || c.is_ascii_digit());
    value.strip_suffix("u;").filter(|_| is_suffix)?.parse().ok()
}

/// The name of the function whose declaration begins in a row: not indented, and with parameters behind the name.
fn function_name(row: &str) -> Option<&str> {
    if let Some((_, name)) = row.split_once("kernel void ") {
        return name.strip_suffix('(');
    }
    let is_declaration = row.starts_with(|c: char| c.is_ascii_alphabetic()) && !row.ends_with(';');
    let (before, _) = row.split_once('(').filter(|_| is_declaration)?;
    before.rsplit(' ').next()
}

/// Offsets of the lines of a text.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    fn at(&self, offset: usize) -> u32 {
        u32::try_from(self.starts.partition_point(|start| *start <= offset)).unwrap_or(0)
    }

    /// The line in which a range begins, if it is known.
    fn of(&self, span: Span) -> Option<u32> {
        let start = span.to_range()?.start;
        (start < self.text.len()).then(|| self.at(start))
    }

    /// The line of a function's declaration, `fn name(` or `void name(`.
    fn declaration(&self, name: &str) -> Option<u32> {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let found = self.text.match_indices(name).find(|(at, _)| {
            let before = self.text[..*at].trim_end();
            let behind = self.text[at + name.len()..].trim_start();
            (before.ends_with("fn") || before.ends_with("void"))
                && behind.starts_with('(')
                && !self.text[..*at].ends_with(is_word)
        });
        found.map(|(at, _)| self.at(at))
    }
}
