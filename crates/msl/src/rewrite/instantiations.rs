//! Explicit instantiations of kernel templates: the overload that each selects, and what it takes from its template.
//!
//! Templates of one name may be overloaded, and only clang knows which of them an instantiation selects. If a name has one
//! template, no question arises. Otherwise every template is annotated with its index in a run of clang of its own, and the
//! annotation of the function that the instantiation names tells the template.

use std::collections::HashMap;
use std::ops::Range;

use crate::lex::TokenKind;
use crate::rewrite::Rewriter;
use crate::rewrite::kernels::{DeclarationKind, Kernel, Template};

/// Where the type of a kernel or template is declared, as token ranges.
pub(super) struct DeclaredType {
    pub kind: DeclarationKind,
    /// Index of the kernel or template.
    pub index: usize,
    /// Before the name.
    pub result: Range<usize>,
    /// Between the parentheses.
    pub parameters: Option<Range<usize>>,
}

impl Rewriter<'_> {
    /// Take the types of kernels and templates from the edited text, and find each instantiation's candidates.
    pub(super) fn take_types(&mut self) {
        let mut definitions: HashMap<String, usize> = HashMap::new();
        for kernel in self.kernels.iter().filter(|kernel| !kernel.callee.contains('<')) {
            *definitions.entry(kernel.path()).or_default() += 1;
        }
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, template) in self.templates.iter().enumerate() {
            by_name.entry(template.base()).or_default().push(index);
        }
        let candidates: Vec<Vec<usize>> =
            self.kernels.iter().map(|k| by_name.get(k.base()).cloned().unwrap_or_default()).collect();
        for declared in std::mem::take(&mut self.types) {
            let parameters = declared.parameters.map(|range| self.edited(range));
            match declared.kind {
                DeclarationKind::Template => {
                    if let Some(template) = &mut self.templates[declared.index].limited {
                        template.parameters = parameters.unwrap_or_default();
                    }
                }
                DeclarationKind::Instantiation => {
                    let result = self.edited(declared.result);
                    let function = match parameters {
                        Some(parameters) => format!("elinvar::type_of<{result}>({parameters})"),
                        None => result,
                    };
                    let kernel = &mut self.kernels[declared.index];
                    kernel.function = Some(function);
                    kernel.candidates.clone_from(&candidates[declared.index]);
                }
                DeclarationKind::Definition | DeclarationKind::Prototype => {
                    let kernel = &mut self.kernels[declared.index];
                    let overloaded = definitions.get(&kernel.path()).is_none_or(|count| *count > 1);
                    // A kernel that returns a value is an error, whose message needs no overload.
                    kernel.function = parameters.filter(|_| overloaded).map(|list| format!("void({list})"));
                }
            }
        }
    }

    /// The edited text of these tokens on one line, without directives.
    fn edited(&self, range: Range<usize>) -> String {
        let mut text = String::new();
        let mut edit = self.edits.partition_point(|(start, ..)| *start < self.tokens.start(range.start));
        let mut at = range.start;
        while at < range.end {
            let start = self.tokens.start(at);
            while self.edits.get(edit).is_some_and(|(before, ..)| *before < start) {
                edit += 1;
            }
            let spelled = match self.edits.get(edit) {
                // Before the token.
                Some((place, end, _)) if *place == start && *end == start => {
                    edit += 1;
                    continue;
                }
                Some((place, end, new)) if *place == start => {
                    while at < range.end && self.tokens.start(at) < *end {
                        at += 1;
                    }
                    new.trim()
                }
                _ => {
                    at += 1;
                    let directive = self.tokens.kind(at - 1) == Some(TokenKind::Directive);
                    if directive { "" } else { self.tokens.spelling(at - 1) }
                }
            };
            if !text.is_empty() && !spelled.is_empty() {
                text.push(' ');
            }
            text.push_str(spelled);
        }
        text
    }
}

/// Whether clang has to select the templates of instantiations.
pub(crate) fn ambiguous(kernels: &[Kernel]) -> bool {
    kernels.iter().any(|kernel| kernel.candidates.len() > 1)
}

/// Complete the instantiations with what their templates declare; `selected` has the templates of [`ambiguous`] ones by the
/// kernel's index. Errors: offset and message.
pub(crate) fn complete(
    kernels: &mut [Kernel],
    templates: &[Kernel],
    selected: &HashMap<usize, usize>,
) -> Vec<(usize, String)> {
    let mut errors = Vec::new();
    for (i, kernel) in kernels.iter_mut().enumerate() {
        let template = match kernel.candidates[..] {
            [] => None,
            [only] => Some(only),
            _ => selected.get(&i).copied(),
        };
        match template.and_then(|index| templates.get(index)) {
            Some(template) => take(kernel, template),
            None if kernel.candidates.is_empty() => {}
            None => errors.push((
                kernel.offset,
                format!(
                    "kernel `{}`: `{}` names none of the kernel templates of this name",
                    kernel.name, kernel.callee
                ),
            )),
        }
    }
    errors
}

fn take(kernel: &mut Kernel, template: &Kernel) {
    if kernel.params.is_empty() {
        kernel.params.clone_from(&template.params);
    }
    for (own, general) in kernel.params.iter_mut().zip(&template.params) {
        own.name.clone_from(&general.name);
        own.space = own.space.or(general.space);
        // A function is instantiated from its template's declaration: the attributes of an instantiation's parameters have no effect. Those
        // of MLX's softmax name another position than its template.
        if !general.attributes.is_empty() {
            own.attributes.clone_from(&general.attributes);
        }
    }
    kernel.offset = template.offset;
    if kernel.max_threads.is_none() {
        kernel.max_threads.clone_from(&template.max_threads);
        // The limit of a specialization depends on no parameter.
        let general = |of: &&Template| of.head.len() > "<>".len();
        kernel.limited = template.limited.as_ref().filter(general).cloned();
    }
}
