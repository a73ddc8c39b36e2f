//! A walk over all expressions of a typed tree.

use crate::hir::{Block, Expr, Kind, LoopKind, Statement};

/// Calls `visit` for each expression in the block, outer ones first.
pub(crate) fn block(block: &Block, visit: &mut impl FnMut(&Expr)) {
    for statement in &block.statements {
        self::statement(statement, visit);
    }
    if let Some(tail) = &block.tail {
        expr(tail, visit);
    }
}

fn statement(statement: &Statement, visit: &mut impl FnMut(&Expr)) {
    match statement {
        Statement::Let(_, Some(value), _) | Statement::Expr(value) => expr(value, visit),
        Statement::Let(_, None, _) => {}
    }
}

/// Calls `visit` for the expression and each within it, outer ones first.
pub(crate) fn expr(tree: &Expr, visit: &mut impl FnMut(&Expr)) {
    visit(tree);
    match &tree.kind {
        Kind::Integer(_)
        | Kind::Float(_)
        | Kind::Bool(_)
        | Kind::Local(_)
        | Kind::Constant(_)
        | Kind::Raw(_)
        | Kind::Length(_)
        | Kind::Continue(_) => {}
        Kind::Unary(_, one)
        | Kind::Cast(one)
        | Kind::Field(one, _)
        | Kind::Deref(one)
        | Kind::Borrow(one)
        | Kind::Repeat(one, _) => expr(one, visit),
        Kind::Binary(_, one, other)
        | Kind::Assign(one, other)
        | Kind::AssignBinary(_, one, other)
        | Kind::Index(one, other) => {
            expr(one, visit);
            expr(other, visit);
        }
        Kind::Operation { operands, .. }
        | Kind::Print(_, operands)
        | Kind::Vector(operands)
        | Kind::Tuple(operands)
        | Kind::Array(operands) => {
            operands.iter().for_each(|operand| expr(operand, visit));
        }
        Kind::Call { arguments, .. } => arguments.iter().for_each(|argument| expr(argument, visit)),
        Kind::Struct(_, fields) => fields.iter().for_each(|(_, value)| expr(value, visit)),
        Kind::Block(inner) => block(inner, visit),
        Kind::If(condition, then, otherwise) => {
            expr(condition, visit);
            block(then, visit);
            if let Some(otherwise) = otherwise {
                expr(otherwise, visit);
            }
        }
        Kind::Match(scrutinee, arms) => {
            expr(scrutinee, visit);
            for arm in arms {
                arm.bindings.iter().for_each(|binding| statement(binding, visit));
                arm.condition.iter().chain(&arm.guard).for_each(|test| expr(test, visit));
                expr(&arm.body, visit);
            }
        }
        Kind::Loop(inner) => {
            match &inner.kind {
                LoopKind::While(condition) => expr(condition, visit),
                LoopKind::Range(range) => {
                    expr(&range.start, visit);
                    expr(&range.end, visit);
                    range.step.iter().for_each(|step| expr(step, visit));
                }
                LoopKind::Forever | LoopKind::Once => {}
            }
            block(&inner.body, visit);
        }
        Kind::Break(_, value) | Kind::Return(value) => {
            if let Some(value) = value {
                expr(value, visit);
            }
        }
    }
}
