//! `goto` without `goto`: a jump out of blocks becomes `break`, and a flag where it leaves more than one loop or `switch`.
//!
//! ```text
//! for (…) for (…) if (x) goto end;         bool goto_end = false;
//! a();                               =>    do { for (…) { for (…) if (x) { goto_end = true; break; } if (goto_end) break; }
//! end: b();                                if (goto_end) break; a(); } while (false); b();
//! ```
//!
//! A jump backward is `continue` of a loop around the statements between. A label must be in a block around the jump; a jump into a block
//! is an error.

use std::collections::{BTreeSet, HashMap};

use crate::opencl::ast::Node;

use super::Renderer;

/// What is written around a statement, or instead of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Edit {
    /// Checks of flags behind the statement before it.
    pub checks: String,
    /// Ends of loops before it.
    pub ends: String,
    /// Beginnings of loops before it.
    pub before: String,
    /// Behind the `{` of a block.
    pub open: String,
    /// Checks of flags, and ends of loops, before the `}` of a block.
    pub last_checks: String,
    pub close: String,
    /// Behind it, in a block with it.
    pub behind: String,
    /// Instead of it.
    pub instead: Option<String>,
}

/// The statements from one to another of a block, which become the body of a loop that a jump leaves or begins anew.
struct Region<'a> {
    label: &'a Node,
    block: &'a Node,
    first: usize,
    /// Behind the last.
    end: usize,
    is_backward: bool,
    /// Whether it is a loop already, so that none is added.
    is_alone: bool,
    /// Checks of flags behind it.
    checks: Vec<String>,
}

/// A statement that goes elsewhere, with the nodes from the body of the function to it.
type Jump<'a> = (&'a Node, Vec<&'a Node>);

/// What `break` leaves: a statement, or the loop of a region.
#[derive(Clone, Copy)]
enum Around<'a> {
    Statement(&'a Node),
    Region(usize),
}

fn is_loop(node: &Node) -> bool {
    matches!(node.kind.as_str(), "ForStmt" | "WhileStmt" | "DoStmt")
}

fn is_breakable(node: &Node) -> bool {
    is_loop(node) || node.kind == "SwitchStmt"
}

/// All jumps and labels below a node, with the nodes from it to them.
fn collect<'a>(
    node: &'a Node,
    path: &mut Vec<&'a Node>,
    jumps: &mut Vec<Jump<'a>>,
    labels: &mut HashMap<u64, Vec<&'a Node>>,
) {
    path.push(node);
    match (node.kind.as_str(), &node.refers) {
        ("GotoStmt" | "BreakStmt" | "ContinueStmt", _) => jumps.push((node, path.clone())),
        ("LabelStmt", Some(label)) => {
            labels.insert(label.id, path.clone());
        }
        _ => {}
    }
    node.children.iter().for_each(|child| collect(child, path, jumps, labels));
    path.pop();
}

/// What is around the end of a path and inside its node `depth`, from the outermost; of the regions in that node only those before `limit`.
fn around<'a>(regions: &[Region], path: &[&'a Node], depth: usize, limit: usize) -> Vec<Around<'a>> {
    let mut found = Vec::new();
    for at in depth..path.len() - 1 {
        let (block, child) = (path[at], path[at + 1]);
        let statement = block.children.iter().position(|statement| statement.id == child.id);
        for (index, region) in regions.iter().enumerate().rev() {
            let is_inside = region.block.id == block.id
                && statement.is_some_and(|statement| (region.first..region.end).contains(&statement));
            if is_inside && !region.is_alone && (at > depth || index < limit) {
                found.push(Around::Region(index));
            }
        }
        if is_breakable(child) {
            found.push(Around::Statement(child));
        }
    }
    found
}

impl Renderer<'_> {
    /// Prepares the edits for the jumps of a function's body.
    pub(super) fn structure_jumps(&mut self, body: &Node) {
        let (mut jumps, mut labels) = (Vec::new(), HashMap::new());
        collect(body, &mut Vec::new(), &mut jumps, &mut labels);
        let mut regions: Vec<Region> = Vec::new();
        let mut targets: Vec<(u64, bool)> = Vec::new();
        for (jump, path) in jumps.iter().filter(|(jump, _)| jump.kind == "GotoStmt") {
            let (label, block, statement, target) = match region_of(jump, path, &labels) {
                Ok(found) => found,
                Err(why) => {
                    self.refuse(jump, why);
                    return;
                }
            };
            let is_backward = statement >= target;
            let (first, end) = if is_backward { (target, statement + 1) } else { (statement, target) };
            targets.push((label.id, is_backward));
            let same =
                |region: &&mut Region| region.label.id == label.id && region.is_backward == is_backward;
            match regions.iter_mut().find(same) {
                Some(region) => {
                    region.first = region.first.min(first);
                    region.end = region.end.max(end);
                }
                None => {
                    let (is_alone, checks) = (false, Vec::new());
                    regions.push(Region { label, block, first, end, is_backward, is_alone, checks });
                }
            }
        }
        if regions.is_empty() {
            return;
        }
        // A region within another is before it.
        regions.sort_by_key(|region| (region.end, std::cmp::Reverse(region.first)));
        for index in 0..regions.len() {
            for inner in 0..index {
                let (a, b) = (&regions[inner], &regions[index]);
                let overlaps = a.block.id == b.block.id && a.first < b.first && b.first < a.end;
                if overlaps && b.is_backward {
                    self.refuse(b.label, "jumps that cross each other have no counterpart in Metal");
                    return;
                } else if overlaps {
                    // It may begin earlier.
                    regions[index].first = regions[inner].first;
                }
            }
        }
        for region in &mut regions {
            region.is_alone = !region.is_backward
                && region.end == region.first + 1
                && is_breakable(&region.block.children[region.first]);
        }
        let mut flags = BTreeSet::new();
        let mut targets = targets.into_iter();
        for (jump, path) in &jumps {
            self.leave(&mut regions, jump, path, &mut targets, &mut flags);
        }
        let edit = self.edits.entry(body.id).or_default();
        for flag in &flags {
            edit.open.push_str(&format!(" bool {flag} = false;"));
        }
        for region in &regions {
            self.surround(region, &flags);
        }
    }

    /// The flag of a region: whether a jump leaves it.
    fn flag(&self, region: &Region) -> String {
        let label = region.label.refers.as_ref().map_or("", |found| &found.name);
        let suffix = if region.is_backward { "_again" } else { "" };
        self.program.names.added(&format!("goto_{label}{suffix}"))
    }

    /// Writes a jump, and what is checked behind the statements that it leaves.
    fn leave(
        &mut self,
        regions: &mut [Region],
        jump: &Node,
        path: &[&Node],
        targets: &mut impl Iterator<Item = (u64, bool)>,
        flags: &mut BTreeSet<String>,
    ) {
        let (left, flag, last, is_alone) = match jump.kind.as_str() {
            "GotoStmt" => {
                let Some((label, is_backward)) = targets.next() else { return };
                let found = regions
                    .iter()
                    .position(|region| region.label.id == label && region.is_backward == is_backward);
                let Some(index) = found else { return };
                let region = &regions[index];
                let depth = path.iter().position(|node| node.id == region.block.id).unwrap_or(0);
                let left = around(regions, path, depth, index);
                let flag = self.flag(region);
                let leave = if is_backward { "continue" } else { "break" };
                if left.is_empty() || (region.is_alone && left.len() == 1) {
                    self.edits.entry(jump.id).or_default().instead = Some(leave.to_owned());
                    return;
                }
                (left, flag.clone(), format!("if ({flag}) {leave};"), region.is_alone)
            }
            kind => {
                let of = |node: &&Node| if kind == "BreakStmt" { is_breakable(node) } else { is_loop(node) };
                let Some(depth) = path.iter().rposition(of) else { return };
                let left = around(regions, path, depth, usize::MAX);
                if !left.iter().any(|around| matches!(around, Around::Region(_))) {
                    return;
                }
                let leave = kind.trim_end_matches("Stmt").to_lowercase();
                let flag = self.program.names.added(&format!("{leave}s"));
                (left, flag.clone(), format!("if ({flag}) {{ {flag} = false; {leave}; }}"), false)
            }
        };
        self.edits.entry(jump.id).or_default().instead = Some(format!("{{ {flag} = true; break; }}"));
        for (k, around) in left.iter().enumerate().skip(usize::from(is_alone)) {
            let check = if k == 0 { last.clone() } else { format!("if ({flag}) break;") };
            match around {
                Around::Region(index) => {
                    let checks = &mut regions[*index].checks;
                    if !checks.contains(&check) {
                        checks.push(check);
                    }
                }
                Around::Statement(node) => {
                    let at = path.iter().position(|other| other.id == node.id).unwrap_or(0);
                    if let Some(parent) = path.get(at.wrapping_sub(1)) {
                        self.behind(parent, node, &check);
                    }
                }
            }
        }
        flags.insert(flag);
    }

    /// Writes the loop of a region around its statements.
    fn surround(&mut self, region: &Region, flags: &BTreeSet<String>) {
        let flag = self.flag(region);
        let reset = if flags.contains(&flag) { format!("{flag} = false; ") } else { String::new() };
        if region.is_alone {
            self.edits.entry(region.label.id).or_default().before.insert_str(0, &reset);
            return;
        }
        let hoisted = self.hoist(region);
        let (begin, end) = if region.is_backward {
            (format!("for (;;) {{ {reset}"), "break; } ".to_owned())
        } else {
            ("do { ".to_owned(), format!("}} while (false); {reset}"))
        };
        let edit = self.edits.entry(region.block.children[region.first].id).or_default();
        edit.before = format!("{hoisted}{begin}{}", edit.before);
        let checks: String = region.checks.iter().map(|check| format!("{check} ")).collect();
        let (id, slot): (u64, fn(&mut Edit) -> &mut String) = match region.block.children.get(region.end) {
            Some(next) => (next.id, |edit| &mut edit.ends),
            None => (region.block.id, |edit| &mut edit.close),
        };
        slot(self.edits.entry(id).or_default()).push_str(&format!("{end}{checks}"));
    }

    /// Adds a check behind a statement.
    fn behind(&mut self, parent: &Node, node: &Node, check: &str) {
        let (id, is_block) = (node.id, parent.kind == "CompoundStmt");
        let next = parent.children.iter().skip_while(|child| child.id != id).nth(1).map(|next| next.id);
        let (edit, slot): (_, fn(&mut Edit) -> &mut String) = match (is_block, next) {
            (true, Some(next)) => (self.edits.entry(next).or_default(), |edit| &mut edit.checks),
            (true, None) => (self.edits.entry(parent.id).or_default(), |edit| &mut edit.last_checks),
            _ => (self.edits.entry(id).or_default(), |edit| &mut edit.behind),
        };
        let text = slot(edit);
        if !text.contains(check) {
            text.push_str(&format!("{check} "));
        }
    }

    /// Declares before a region what it declares and later statements use; in the region remain the assignments.
    fn hoist(&mut self, region: &Region) -> String {
        let statements = &region.block.children;
        let mut out = String::new();
        for statement in statements[region.first..region.end].iter().filter(|s| s.kind == "DeclStmt") {
            let variables: Vec<&Node> =
                statement.children.iter().filter(|child| child.kind == "VarDecl").collect();
            let is_used = |variable: &&Node| {
                let mut found = false;
                statements[region.end..].iter().for_each(|later| {
                    later.walk(&mut |node| {
                        found |= node.refers.as_ref().is_some_and(|refers| refers.id == variable.id);
                    });
                });
                found
            };
            if !variables.iter().any(is_used) {
                continue;
            }
            let mut assignments = Vec::new();
            for variable in variables {
                let Some(mut of) = self.parse_type(variable) else {
                    return self.refuse(
                        variable,
                        format!("`{}` is declared between a `goto` and its label", variable.name),
                    );
                };
                of.qualifiers_mut().is_const = false;
                let name = self.program.names.of(&variable.name);
                out.push_str(&format!("{}; ", self.declare(&of, &name)));
                let value = variable.children.iter().find(|child| super::declarations::is_expression(child));
                match value {
                    Some(value) if value.kind == "InitListExpr" => {
                        return self.refuse(
                            variable,
                            format!("`{}` is initialized between a `goto` and its label", variable.name),
                        );
                    }
                    Some(value) => assignments.push(format!("{name} = {}", self.node(value))),
                    None => {}
                }
            }
            self.edits.entry(statement.id).or_default().instead = Some(assignments.join("; ") + ";");
        }
        out
    }

    /// A statement with its edits.
    pub(super) fn edited(&mut self, node: &Node, edit: Edit) -> String {
        let mut text = match edit.instead {
            Some(text) => {
                let (begin, end) = (node.begin.unwrap_or(0), node.end.unwrap_or(0));
                self.fit(begin, end, text)
            }
            None => self.unedited(node),
        };
        if let Some(rest) = text.strip_prefix('{').filter(|_| !edit.open.is_empty()) {
            text = format!("{{{}{rest}", edit.open);
        }
        let close = edit.last_checks + &edit.close;
        if let Some(rest) = text.strip_suffix('}').filter(|_| !close.is_empty()) {
            let (kept, blank) = rest.split_at(rest.trim_end().len());
            text = format!("{kept} {}{blank}}}", close.trim());
        }
        if !edit.behind.is_empty() {
            let semicolon = if self.has_semicolon(node) { ";" } else { "" };
            text = format!("{{ {text}{semicolon} {}}}", edit.behind);
        }
        edit.checks + &edit.ends + &edit.before + &text
    }

    /// Whether a semicolon that follows is part of what has been written.
    pub(super) fn swallows(&self, node: &Node) -> bool {
        let edit = self.edits.get(&node.id);
        edit.is_some_and(|edit| {
            !edit.behind.is_empty() || edit.instead.as_ref().is_some_and(|text| text.ends_with(['}', ';']))
        })
    }

    fn has_semicolon(&self, node: &Node) -> bool {
        node.end.is_some_and(|end| self.statement_end(end) > end)
    }
}

/// The label of a jump, the block with it, the statement of the block that has the jump, and that which has the label.
fn region_of<'a>(
    jump: &Node,
    path: &[&'a Node],
    labels: &HashMap<u64, Vec<&'a Node>>,
) -> Result<(&'a Node, &'a Node, usize, usize), &'static str> {
    let label = jump.refers.as_ref().and_then(|found| labels.get(&found.id));
    let label = label.ok_or("Metal has no `goto` to a computed label")?;
    let (Some(node), Some(block)) = (label.last(), label.len().checked_sub(2).map(|at| label[at])) else {
        return Err("Metal has no `goto`");
    };
    if block.kind != "CompoundStmt" {
        return Err(
            "Metal has no `goto`; its label is not a statement of a block, so that no loop can replace it",
        );
    }
    let at = path.iter().position(|other| other.id == block.id);
    let at =
        at.ok_or("Metal has no `goto`; its label is in another block, so that no loop can replace it")?;
    let place = |id: u64| block.children.iter().position(|statement| statement.id == id);
    let statement = path.get(at + 1).and_then(|child| place(child.id)).ok_or("Metal has no `goto`")?;
    let target = place(node.id).ok_or("Metal has no `goto`")?;
    Ok((node, block, statement, target))
}
