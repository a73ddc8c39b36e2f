//! Calls of functions that are overloaded on address spaces only.
//!
//! In C++ such functions have the same parameters. One of them keeps its name, and begins with tests of the address spaces of what its
//! parameters refer to, upon which it calls the others, which have other names. The tests are calls of `__elinvar_address_space`, which
//! [`crate::ir::address_spaces`] evaluates where the function is inlined.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::function_head::{Head, Place, Space, Spaces};
use super::overloads::{self, OverloadSet, Preferred, Rivals, Verdict};
use super::{AddressSpaces, Rewriter, Scope};
use crate::lex::token_buffer::TokenBuffer;

/// Two functions that differ only by address spaces: offsets of their declarations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overload {
    pub first: usize,
    pub second: usize,
}

impl Rewriter<'_> {
    /// Remove the declaration at `i` if it differs from an earlier one by address spaces only, or is the library's.
    pub(super) fn repeated(&mut self, i: usize) -> Option<usize> {
        if let Some(Scope::Namespace(_, names)) = self.scopes.last()
            && self.namespaces() == ["metal"]
            && names.len() == 1
            && let Some(behind) = overloads::of_library(self.tokens, i)
        {
            self.edit(i, behind, String::new());
            self.statement = behind;
            return Some(behind);
        }
        if self.address_spaces == AddressSpaces::Annotated {
            if overloads::is_variable(self.tokens, i) && !self.in_body() {
                let message = "a variable at program scope has no address space; Metal requires `constant`";
                self.warnings.push((self.tokens.start(i), message.to_owned()));
            }
            return None;
        }
        let (scope, class) = match self.scopes.last() {
            None | Some(Scope::Linkage) => (0, false),
            Some(Scope::Class(number, _)) => (*number, true),
            Some(Scope::Namespace(number, _)) => (*number, false),
            Some(Scope::Body { .. }) => return None,
        };
        let repeated = self.declarations.visit(self.tokens, i, scope, class)?;
        match repeated.verdict {
            Verdict::Same => {}
            Verdict::Other(_) => return None,
            Verdict::Indistinct(first) => {
                let (first, second) = (self.tokens.start(first), self.tokens.start(i));
                self.indistinct.push(Overload { first, second });
            }
        }
        self.edit(i, repeated.behind, String::new());
        self.statement = repeated.behind;
        Some(repeated.behind)
    }

    /// Append the edits for all sets of overloads.
    pub(super) fn dispatch_overloads(&mut self) {
        let sets = std::mem::take(&mut self.declarations.sets);
        for set in sets.iter().filter(|set| !set.others.is_empty()) {
            self.dispatch(set);
        }
        self.declarations.sets = sets;
        let declarations = std::mem::take(&mut self.declarations);
        for pair in declarations.preferred() {
            self.dispatch_preferred(&pair);
        }
        for rivals in declarations.rivals() {
            self.expect(&rivals);
        }
    }

    /// Let functions say which address spaces they expect.
    fn expect(&mut self, rivals: &Rivals) {
        let tokens = self.tokens;
        for head in rivals.functions {
            let number = self.overloads.len();
            let other = tokens.start(rivals.other.start);
            self.overloads.push(Overload { first: tokens.start(head.start), second: other });
            self.name_parameters(head);
            let expected = rivals.expected.iter().map(|(place, mask)| {
                let address = head.address(tokens, *place);
                format!(
                    " __elinvar_expect_address_space((const volatile void*)({address}), {number}, {mask});"
                )
            });
            let mut expected: String = expected.collect();
            if (head.start..head.name.0).any(|t| tokens.spelling(t) == "constexpr") {
                expected = format!(" if (!__builtin_is_constant_evaluated()) {{{expected} }}");
            }
            self.insert(tokens.start(head.end) + 1, expected);
        }
    }

    /// Let a function call one that has `const` where it does not, for the address spaces of the latter.
    fn dispatch_preferred(&mut self, pair: &Preferred) {
        let tokens = self.tokens;
        let Preferred { first, second, spaces: [own, others] } = pair;
        // Objects in `constant` are always const.
        let constant = |spaces: &Spaces| spaces.values().all(|space| *space == Space::Constant);
        if first.head.spaces.len() < 2 && others.iter().all(|spaces| constant(spaces)) {
            return;
        }
        let starts = [first, second].map(|variant| tokens.start(variant.head.start));
        let overload = Overload { first: starts[0], second: starts[1] };
        let qualified = first.head.qualified || second.head.qualified || second.head.specialization;
        if qualified || first.defaults != second.defaults {
            self.indistinct.push(overload);
            return;
        }
        let number = self.overloads.len();
        self.overloads.push(overload);
        let name = format!("{}_{number}", second.head.overload_name(tokens));
        let original = second.head.own_name(tokens);
        if !first.in_class {
            self.insert(starts[0], second.head.declaration(tokens, &name, true));
        }
        let declaration = second.head.declaration(tokens, &name, first.in_class);
        let definition = format!(
            " {} {{ return {}; }}",
            declaration.trim_end().trim_end_matches(';'),
            second.head.call(tokens, &original)
        );
        let last = second.behind - 1;
        self.insert(tokens.start(last) + tokens.spelling(last).len(), definition);
        self.name_parameters(&first.head);
        let candidates = candidates(|| own.iter().chain(others).copied());
        let tests = others.iter().map(|spaces| tests(tokens, &first.head, spaces, &candidates, number));
        let tests = tests.map(|tests| format!("({tests})")).collect::<Vec<_>>().join(" || ");
        let (result, call) = (first.head.result(tokens), first.head.call(tokens, &name));
        self.insert(tokens.start(first.head.end) + 1, format!(" if ({tests}) return ({result})({call});"));
    }

    fn dispatch(&mut self, set: &OverloadSet) {
        let tokens = self.tokens;
        let number = self.overloads.len();
        let (first, second) = (tokens.start(set.first.start), tokens.start(set.others[0].start));
        self.overloads.push(Overload { first, second });
        for head in std::iter::once(&set.first).chain(&set.others) {
            // The call of an intrinsic is not a constant expression.
            for t in (head.start..head.name.0).filter(|&t| tokens.spelling(t) == "constexpr") {
                self.edit(t, t + 1, String::new());
            }
        }
        for other in &set.others {
            let name = other.overload_name(tokens);
            self.edit(other.name.0, other.name.1, other.renamed(tokens, &name));
            // All arguments are passed. What has been declared before has its defaults.
            let declared = !set.in_class && !other.qualified;
            let of_template = other.template_defaults.iter().copied().filter(|_| declared);
            let defaults = other.parameters.iter().filter(|p| p.to < p.behind).map(|p| (p.to, p.behind));
            for (from, to) in defaults.chain(of_template) {
                self.edit(from, to, String::new());
            }
        }
        if tokens.spelling(set.first.end) == ";" {
            // Either one may be defined first.
            let declaration = set.first.declaration(tokens, &set.first.overload_name(tokens), true);
            self.insert(first, declaration);
            return;
        }
        self.name_parameters(&set.first);
        let all = || set.spaces.iter().chain(set.others.iter().map(|Head { spaces, .. }| spaces));
        let candidates = candidates(all);
        let mut calls = String::new();
        for other in &set.others {
            let name = other.overload_name(tokens);
            if !set.in_class && !other.qualified {
                self.insert(first, set.first.declaration(tokens, &name, true));
            }
            let tests = tests(tokens, &set.first, &other.spaces, &candidates, number);
            let _ = write!(calls, " if ({tests}) return {};", set.first.call(tokens, &name));
        }
        self.insert(tokens.start(set.first.end) + 1, calls);
    }

    /// Give the unnamed parameters names.
    fn name_parameters(&mut self, head: &Head) {
        for (i, parameter) in head.parameters.iter().enumerate().filter(|(_, p)| p.name.is_none()) {
            let last = parameter.to - 1;
            let end = self.tokens.start(last) + self.tokens.spelling(last).len();
            let name = head.parameter_name(self.tokens, i);
            if self.named.insert(end) {
                self.insert(end, format!(" {name}"));
            }
        }
    }

    /// Insert text at an offset.
    fn insert(&mut self, at: usize, text: String) {
        self.insertions.push((at, at, text));
    }
}

/// The test whether the objects that a function's parameters refer to are in these address spaces.
fn tests(
    tokens: &TokenBuffer,
    head: &Head,
    spaces: &Spaces,
    candidates: &BTreeMap<Place, u8>,
    number: usize,
) -> String {
    let tests = candidates.iter().filter_map(|(place, mask)| {
        let space = space_at(spaces, *place)?;
        let address = head.address(tokens, *place);
        Some(format!(
            "__elinvar_address_space((const volatile void*)({address}), {number}, {mask}) == {}",
            space as u8
        ))
    });
    tests.collect::<Vec<_>>().join(" && ")
}

/// The places at which functions' address spaces differ, with the set of these.
fn candidates<'a, I: Iterator<Item = &'a Spaces>>(all: impl Fn() -> I) -> BTreeMap<Place, u8> {
    let mut candidates = BTreeMap::new();
    for place in all().flat_map(|spaces| spaces.keys()) {
        let mask =
            all().filter_map(|spaces| space_at(spaces, *place)).fold(0, |mask, space| mask | space as u8);
        if mask.count_ones() > 1 {
            candidates.insert(*place, mask);
        }
    }
    candidates
}

/// Member functions without an address space are for objects in the `thread` address space.
fn space_at(spaces: &Spaces, place: Place) -> Option<Space> {
    let implied = (place == Place::This).then_some(Space::Thread);
    spaces.get(&place).copied().or(implied)
}
