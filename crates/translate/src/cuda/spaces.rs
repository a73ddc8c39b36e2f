//! Address spaces of pointers: CUDA's are generic, those of MSL are part of the type.
//!
//! A function is translated once for each combination of address spaces of its arguments. Within it, unification (Steensgaard's analysis)
//! gives each pointer variable one space: an assignment makes both sides equal, a conflict is an error with its place.

use std::collections::HashMap;

use super::ast::{Node, is_expression};
use super::names::Names;
use super::program::{Key, Program};
use super::types::{Scalar, Space, Ty, vector};

/// Index of a class of equal spaces.
pub(super) type Slot = usize;

/// Where an expression's value is, and what its pointers point to.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// The space of an lvalue.
    pub space: Option<Slot>,
    pub levels: Vec<Slot>,
}

/// The address spaces of a function's variables and expressions.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    parents: Vec<Slot>,
    known: Vec<Option<Space>>,
    pub variables: HashMap<u64, Vec<Slot>>,
    pub expressions: HashMap<usize, Place>,
    pub result: Vec<Slot>,
    pub this: Slot,
    fields: Vec<(u64, usize, Slot)>,
    /// Calls: the node, the function, and the pointers that it gets.
    pub calls: Vec<Called>,
    pub errors: Vec<(usize, String)>,
}

/// A call of a function that the source defines.
#[derive(Debug)]
pub(super) struct Called {
    pub node: usize,
    pub at: usize,
    pub function: u64,
    pub given: Vec<Slot>,
    pub result: Vec<Slot>,
}

pub(super) fn key(node: &Node) -> usize {
    std::ptr::from_ref(node) as usize
}

impl Spaces {
    fn fresh(&mut self, space: Option<Space>) -> Slot {
        self.parents.push(self.parents.len());
        self.known.push(space);
        self.parents.len() - 1
    }

    fn root(&self, mut slot: Slot) -> Slot {
        while self.parents[slot] != slot {
            slot = self.parents[slot];
        }
        slot
    }

    pub fn get(&self, slot: Slot) -> Option<Space> {
        self.known[self.root(slot)]
    }

    /// The space, or that of device memory for a pointer that is never set.
    pub fn of(&self, slot: Slot) -> Space {
        self.get(slot).unwrap_or(Space::Device)
    }

    fn unify(&mut self, a: Slot, b: Slot, at: usize) {
        let (a, b) = (self.root(a), self.root(b));
        if a == b {
            return;
        }
        match (self.known[a], self.known[b]) {
            (Some(x), Some(y)) if x != y => {
                self.errors.push((
                    at,
                    format!("a pointer into {} memory and one into {} memory meet here, and a pointer of Metal has one address space", x.word(), y.word()),
                ));
            }
            (None, _) => self.parents[a] = b,
            (_, _) => self.parents[b] = a,
        }
    }

    fn unify_all(&mut self, a: &[Slot], b: &[Slot], at: usize) {
        for (a, b) in a.iter().zip(b) {
            self.unify(*a, *b, at);
        }
    }
}

/// The walk over a function.
pub(super) struct Walk<'p, 'a> {
    pub names: &'p Names<'a>,
    pub program: &'p Program<'a>,
    pub spaces: Spaces,
    pub is_kernel: bool,
}

impl<'a> Walk<'_, 'a> {
    /// Finds the spaces of a function's pointers, as far as they follow from the function alone.
    pub fn function(&mut self, node: &'a Node, record: Option<u64>, given: &Key) {
        let mut given = given.spaces.iter().copied();
        self.spaces.this = self.spaces.fresh(None);
        if record.is_some() {
            let this = given.next().flatten();
            self.spaces.this = self.spaces.fresh(this);
        }
        for param in node.params() {
            let ty = self.ty(param);
            let count = if self.is_value(&ty) { 0 } else { ty.levels() };
            let levels: Vec<Slot> = (0..count)
                .map(|_| {
                    let space = if self.is_kernel { Some(Space::Device) } else { given.next().flatten() };
                    self.spaces.fresh(space)
                })
                .collect();
            self.spaces.variables.insert(param.id, levels);
        }
        let result = result_type(node, self.names);
        self.spaces.result = (0..result.levels()).map(|_| self.spaces.fresh(None)).collect();
        if node.kind == "CXXConstructorDecl" {
            for initializer in node.children.iter().filter(|child| child.kind == "CXXCtorInitializer") {
                initializer.children.iter().for_each(|child| {
                    self.expression(child);
                });
            }
        }
        if let Some(body) = node.body() {
            self.statement(body);
        }
    }

    pub fn ty(&self, node: &Node) -> Ty {
        Ty::parse(&node.ty_text()).resolve(self.names)
    }

    /// Whether a parameter of this type is passed by value, though it is a reference: one to a constant number or vector.
    pub fn is_value(&self, ty: &Ty) -> bool {
        is_value(ty)
    }

    fn statement(&mut self, node: &'a Node) {
        match node.kind.as_str() {
            "VarDecl" => self.variable(node),
            "ReturnStmt" => {
                if let Some(value) = node.first() {
                    let place = self.expression(value);
                    let result = self.spaces.result.clone();
                    let at = node.begin.unwrap_or(0);
                    let is_reference = result.len() > place.levels.len();
                    let mut levels = place.levels;
                    if is_reference && let Some(space) = place.space {
                        levels.insert(0, space);
                    }
                    self.spaces.unify_all(&result, &levels, at);
                }
            }
            kind if is_expression(kind) => {
                self.expression(node);
            }
            "CXXRecordDecl" => {}
            _ => node.children.iter().for_each(|child| self.statement(child)),
        }
    }

    fn variable(&mut self, node: &'a Node) {
        let ty = self.ty(node);
        let levels: Vec<Slot> = (0..ty.levels()).map(|_| self.spaces.fresh(None)).collect();
        self.spaces.variables.insert(node.id, levels.clone());
        let Some(value) = node.initializer() else { return };
        let place = self.expression(value);
        let at = node.begin.unwrap_or(0);
        if ty.is_reference() {
            let space = place.space.unwrap_or_else(|| self.spaces.fresh(Some(Space::Thread)));
            self.spaces.unify(levels[0], space, at);
            self.spaces.unify_all(&levels[1..], &place.levels, at);
        } else {
            self.spaces.unify_all(&levels, &place.levels, at);
        }
    }

    fn fresh_levels(&mut self, ty: &Ty) -> Vec<Slot> {
        (0..ty.levels()).map(|_| self.spaces.fresh(None)).collect()
    }

    /// The spaces of a field's pointers, which are those of all objects of its type.
    fn field(&mut self, id: u64, ty: &Ty) -> Vec<Slot> {
        (0..ty.levels())
            .map(|level| {
                let space = self.program.fields.borrow().get(&(id, level)).copied();
                let slot = self.spaces.fresh(space);
                self.spaces.fields.push((id, level, slot));
                slot
            })
            .collect()
    }

    /// What has been found out about fields.
    pub fn publish_fields(&mut self) -> bool {
        let mut changed = false;
        let mut fields = self.program.fields.borrow_mut();
        for (id, level, slot) in &self.spaces.fields {
            if let Some(space) = self.spaces.get(*slot)
                && fields.insert((*id, *level), space).is_none()
            {
                changed = true;
            }
        }
        changed
    }

    fn expression(&mut self, node: &'a Node) -> Place {
        let mut place = self.place(node);
        if node.category == "lvalue" && place.space.is_none() {
            place.space = Some(self.spaces.fresh(Some(Space::Thread)));
        }
        self.spaces.expressions.insert(key(node), place.clone());
        place
    }

    fn children(&mut self, node: &'a Node) -> Vec<Place> {
        node.children
            .iter()
            .map(|child| {
                if is_expression(&child.kind) {
                    self.expression(child)
                } else {
                    self.statement(child);
                    Place::default()
                }
            })
            .collect()
    }

    fn place(&mut self, node: &'a Node) -> Place {
        let at = node.begin.unwrap_or(0);
        match node.kind.as_str() {
            "DeclRefExpr" => self.reference(node),
            "CXXThisExpr" => Place { space: None, levels: vec![self.spaces.this] },
            "ParenExpr"
            | "ExprWithCleanups"
            | "ConstantExpr"
            | "SubstNonTypeTemplateParmExpr"
            | "CXXBindTemporaryExpr"
            | "CXXDefaultArgExpr"
            | "CXXDefaultInitExpr" => self.children(node).pop().unwrap_or_default(),
            "MaterializeTemporaryExpr" => {
                let inner = self.children(node).pop().unwrap_or_default();
                Place { space: Some(self.spaces.fresh(Some(Space::Thread))), levels: inner.levels }
            }
            "ImplicitCastExpr"
            | "CStyleCastExpr"
            | "CXXStaticCastExpr"
            | "CXXReinterpretCastExpr"
            | "CXXConstCastExpr"
            | "CXXFunctionalCastExpr" => self.cast(node),
            "UnaryOperator" => {
                let mut inner = self.children(node).pop().unwrap_or_default();
                match node.opcode.as_str() {
                    "&" => {
                        let space = inner.space.unwrap_or_else(|| self.spaces.fresh(Some(Space::Thread)));
                        inner.levels.insert(0, space);
                        Place { space: None, levels: inner.levels }
                    }
                    "*" if !inner.levels.is_empty() => {
                        let space = inner.levels.remove(0);
                        Place { space: Some(space), levels: inner.levels }
                    }
                    _ => inner,
                }
            }
            "ArraySubscriptExpr" => {
                let places = self.children(node);
                let mut base = places.into_iter().find(|place| !place.levels.is_empty()).unwrap_or_default();
                if base.levels.is_empty() {
                    return base;
                }
                let space = base.levels.remove(0);
                Place { space: Some(space), levels: base.levels }
            }
            "MemberExpr" => self.member(node),
            "BinaryOperator" | "CompoundAssignOperator" => {
                let mut places = self.children(node);
                let (right, left) = (places.pop().unwrap_or_default(), places.pop().unwrap_or_default());
                match node.opcode.as_str() {
                    "=" | "==" | "!=" | "<" | ">" | "<=" | ">=" | "-"
                        if !left.levels.is_empty() && !right.levels.is_empty() =>
                    {
                        self.spaces.unify_all(&left.levels, &right.levels, at);
                        if matches!(node.opcode.as_str(), "=") { left } else { Place::default() }
                    }
                    "," => right,
                    "+" | "-" if left.levels.is_empty() => Place { space: None, levels: right.levels },
                    _ => left,
                }
            }
            "ConditionalOperator" => {
                let mut places = self.children(node);
                let (other, one) = (places.pop().unwrap_or_default(), places.pop().unwrap_or_default());
                self.spaces.unify_all(&one.levels, &other.levels, at);
                if node.category == "lvalue"
                    && let (Some(a), Some(b)) = (one.space, other.space)
                {
                    self.spaces.unify(a, b, at);
                }
                Place { space: one.space.filter(|_| node.category == "lvalue"), levels: one.levels }
            }
            "CallExpr" | "CXXMemberCallExpr" | "CXXOperatorCallExpr" => self.call(node),
            "CXXConstructExpr" | "CXXTemporaryObjectExpr" => self.construct(node),
            "InitListExpr" => self.list(node),
            "LambdaExpr" => {
                let closure = node.first();
                let fields: Vec<&'a Node> = closure.map_or(Vec::new(), |record| {
                    record.children.iter().filter(|child| child.kind == "FieldDecl").collect()
                });
                let values: Vec<&'a Node> =
                    node.children.iter().skip(1).filter(|child| is_expression(&child.kind)).collect();
                for (field, value) in fields.iter().zip(values) {
                    self.bind_field(field, value);
                }
                Place::default()
            }
            _ => {
                self.children(node);
                let ty = Ty::parse(&node.ty_text()).resolve(self.names);
                Place { space: None, levels: self.fresh_levels(&ty) }
            }
        }
    }

    /// A field that gets a value.
    fn bind_field(&mut self, field: &'a Node, value: &'a Node) {
        let ty = self.ty(field);
        let levels = self.field(field.id, &ty);
        let place = self.expression(value);
        let at = value.begin.unwrap_or(0);
        if ty.is_reference() {
            if let Some(space) = place.space {
                self.spaces.unify(levels[0], space, at);
            }
            self.spaces.unify_all(&levels[1..], &place.levels, at);
        } else {
            self.spaces.unify_all(&levels, &place.levels, at);
        }
    }

    fn reference(&mut self, node: &'a Node) -> Place {
        let Some(to) = &node.refers else { return Place::default() };
        if to.kind != "VarDecl" && to.kind != "ParmVarDecl" {
            return Place::default();
        }
        let Some(declared) = self.names.nodes.get(&to.id).copied() else { return Place::default() };
        let ty = self.ty(declared);
        if let Some(levels) = self.spaces.variables.get(&to.id).cloned() {
            if ty.is_reference() && !levels.is_empty() {
                return Place { space: Some(levels[0]), levels: levels[1..].to_vec() };
            }
            let space = self.storage(declared);
            let space = Some(self.spaces.fresh(Some(space)));
            return Place { space, levels };
        }
        if let Some(field) = self.program.capture(to.id) {
            let ty = self.ty(field);
            let levels = self.field(field.id, &ty);
            return match ty.is_reference() {
                true => Place { space: Some(levels[0]), levels: levels[1..].to_vec() },
                false => Place { space: Some(self.spaces.this), levels },
            };
        }
        let space = self.storage(declared);
        let space = Some(self.spaces.fresh(Some(space)));
        let levels = self.field(declared.id, &ty);
        Place { space, levels }
    }

    /// The address space of a variable.
    fn storage(&self, declared: &Node) -> Space {
        if declared.has("CUDASharedAttr") {
            return Space::Threadgroup;
        }
        match self.program.global(declared) {
            Some(space) => space,
            None if self.program.is_constant_parameter(declared.id) => Space::Constant,
            None => Space::Thread,
        }
    }

    fn member(&mut self, node: &'a Node) -> Place {
        let base = self.children(node).pop().unwrap_or_default();
        let space = if node.is_arrow { base.levels.first().copied() } else { base.space };
        let Some(id) = node.refers.as_ref().map(|to| to.id) else { return Place::default() };
        let Some(field) = self.names.nodes.get(&id).copied() else {
            return Place { space, levels: Vec::new() };
        };
        let ty = self.ty(field);
        let levels = self.field(id, &ty);
        if field.kind == "VarDecl" {
            let space = self.storage(field);
            return Place { space: Some(self.spaces.fresh(Some(space))), levels };
        }
        match ty.is_reference() {
            true => Place { space: Some(levels[0]), levels: levels[1..].to_vec() },
            false => Place { space, levels },
        }
    }

    fn cast(&mut self, node: &'a Node) -> Place {
        // The values of a conditional may be in different memory.
        let mut choice = node.first();
        while let Some(inner) = choice.filter(|inner| inner.kind == "ParenExpr") {
            choice = inner.first();
        }
        if let ("LValueToRValue", Some(choice)) = (node.cast.as_str(), choice)
            && let ("ConditionalOperator", [condition, one, other]) =
                (choice.kind.as_str(), &choice.children[..])
        {
            self.expression(condition);
            let (one, other) = (self.expression(one), self.expression(other));
            self.spaces.unify_all(&one.levels, &other.levels, node.begin.unwrap_or(0));
            return Place { space: None, levels: one.levels };
        }
        let inner = self.children(node).pop().unwrap_or_default();
        let ty = Ty::parse(&node.ty_text()).resolve(self.names);
        match node.cast.as_str() {
            "ArrayToPointerDecay" => {
                let space = inner.space.unwrap_or_else(|| self.spaces.fresh(Some(Space::Thread)));
                let mut levels = inner.levels;
                levels.insert(0, space);
                Place { space: None, levels }
            }
            "LValueToRValue" => Place { space: None, levels: inner.levels },
            "NoOp" | "LValueBitCast" if node.category == "lvalue" || node.category == "xvalue" => {
                Place { space: inner.space, levels: self.sized(inner.levels, &ty) }
            }
            "ConstructorConversion" | "UserDefinedConversion" => inner,
            "IntegralToPointer" | "NullToPointer" => Place { space: None, levels: self.fresh_levels(&ty) },
            _ => Place {
                space: inner.space.filter(|_| node.category == "lvalue"),
                levels: self.sized(inner.levels, &ty),
            },
        }
    }

    /// The levels of a type to which a pointer is cast.
    fn sized(&mut self, mut levels: Vec<Slot>, ty: &Ty) -> Vec<Slot> {
        let count = ty.referred().levels();
        levels.truncate(count);
        while levels.len() < count {
            levels.push(self.spaces.fresh(None));
        }
        levels
    }

    fn construct(&mut self, node: &'a Node) -> Place {
        let places = self.children(node);
        match self.program.constructor(node) {
            Some(function) => {
                let this = self.spaces.fresh(Some(Space::Thread));
                let mut given = vec![this];
                let args: Vec<&'a Node> = node.children.iter().collect();
                self.given(function, &args, &places, &mut given);
                self.spaces.calls.push(Called {
                    node: key(node),
                    at: node.begin.unwrap_or(0),
                    function: function.id,
                    given,
                    result: Vec::new(),
                });
                Place::default()
            }
            None => Place { space: None, levels: places.into_iter().next().unwrap_or_default().levels },
        }
    }

    fn list(&mut self, node: &'a Node) -> Place {
        let ty = Ty::parse(&node.ty_text()).resolve(self.names);
        let fields = ty.name().map_or(Vec::new(), |name| self.program.fields_of(name));
        if fields.is_empty() {
            let levels = self.fresh_levels(&ty);
            for place in self.children(node) {
                self.spaces.unify_all(&levels, &place.levels, node.begin.unwrap_or(0));
            }
            return Place { space: None, levels };
        }
        for (field, value) in fields.iter().zip(&node.children) {
            if is_expression(&value.kind) {
                self.bind_field(field, value);
            }
        }
        Place::default()
    }

    fn call(&mut self, node: &'a Node) -> Place {
        let places = self.children(node);
        let ty = Ty::parse(&node.ty_text()).resolve(self.names);
        let is_place = node.category == "lvalue" || node.category == "xvalue";
        let Some((function, has_object)) = self.program.callee(node) else {
            // A builtin function: what it returns points to where its argument does.
            let levels = places.iter().skip(1).find(|place| !place.levels.is_empty() && ty.levels() > 0);
            let levels = levels.map(|place| place.levels.clone());
            let levels = match levels {
                Some(levels) => self.sized(levels, &ty),
                None => self.fresh_levels(&ty),
            };
            return Place { space: None, levels };
        };
        let mut given = Vec::new();
        let mut args: Vec<&'a Node> = node.children.iter().skip(1).collect();
        let mut rest = places[1.min(places.len())..].to_vec();
        if has_object {
            let object = if node.kind == "CXXMemberCallExpr" {
                let callee = node.callee();
                let is_arrow = callee.is_some_and(|member| member.is_arrow);
                let base = callee
                    .and_then(Node::first)
                    .and_then(|base| self.spaces.expressions.get(&key(base)).cloned());
                base.and_then(|place| if is_arrow { place.levels.first().copied() } else { place.space })
            } else {
                args.remove(0);
                rest.remove(0).space
            };
            given.push(object.unwrap_or_else(|| self.spaces.fresh(Some(Space::Thread))));
        }
        self.given(function, &args, &rest, &mut given);
        let result_ty = result_type(function, self.names);
        let result: Vec<Slot> = self.fresh_levels(&result_ty);
        self.spaces.calls.push(Called {
            node: key(node),
            at: node.begin.unwrap_or(0),
            function: function.id,
            given,
            result: result.clone(),
        });
        match is_place && result_ty.is_reference() {
            true => Place { space: Some(result[0]), levels: result[1..].to_vec() },
            false => Place { space: None, levels: result },
        }
    }

    /// The pointers that a function's parameters get.
    fn given(&mut self, function: &'a Node, args: &[&'a Node], places: &[Place], given: &mut Vec<Slot>) {
        for (index, param) in function.params().enumerate() {
            let ty = self.ty(param);
            if self.is_value(&ty) {
                continue;
            }
            let place = places.get(index).cloned().unwrap_or_default();
            let at = args.get(index).and_then(|arg| arg.begin).unwrap_or(0);
            let mut levels = place.levels;
            if ty.is_reference() {
                levels.insert(0, place.space.unwrap_or_else(|| self.spaces.fresh(Some(Space::Thread))));
            }
            let _ = at;
            let count = ty.levels();
            levels.truncate(count);
            while levels.len() < count {
                levels.push(self.spaces.fresh(None));
            }
            given.extend(levels);
        }
    }

    /// Makes the result of a call, and what it found out about its arguments, known here. Returns whether anything is new.
    pub fn learn(
        spaces: &mut Spaces,
        call: usize,
        given: &[Option<Space>],
        result: &[Option<Space>],
    ) -> bool {
        let mut changed = false;
        let (slots, results, at) = {
            let called = &spaces.calls[call];
            (called.given.clone(), called.result.clone(), called.at)
        };
        for (slot, space) in slots.iter().zip(given).chain(results.iter().zip(result)) {
            if let Some(space) = space
                && spaces.get(*slot) != Some(*space)
            {
                let known = spaces.fresh(Some(*space));
                spaces.unify(*slot, known, at);
                changed = true;
            }
        }
        changed
    }
}

/// Whether a parameter is passed by value, though it is a reference: one to a constant number or vector.
pub(super) fn is_value(ty: &Ty) -> bool {
    let Ty::Reference(to) = ty else { return false };
    matches!(&**to, Ty::Named { is_const: true, is_volatile: false, name } if Scalar::named(name).is_some() || vector(name).is_some())
}

/// The type that a function returns.
pub(super) fn result_type(node: &Node, names: &Names<'_>) -> Ty {
    if node.kind == "CXXConstructorDecl" {
        return Ty::parse("void");
    }
    let text = &node.ty;
    let _scope = names.scope_of(node.id);
    // Up to the parentheses of the parameters, which are the last group.
    let mut depth = 0_usize;
    let mut open = text.len();
    let end = text.rfind(')').map_or(text.len(), |at| at + 1);
    for (at, c) in text[..end].char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    open = at;
                    break;
                }
            }
            _ => {}
        }
    }
    if let Some((_, trailing)) = text.split_once(" -> ") {
        return Ty::parse(trailing).resolve(names);
    }
    Ty::parse(&text[..open]).resolve(names)
}

impl Node {
    /// The type: as written if that is without typedefs at its outermost level.
    pub fn ty_text(&self) -> String {
        if self.plain.is_empty() { self.ty.clone() } else { self.plain.clone() }
    }
}
