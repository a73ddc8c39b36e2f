//! Products of simdgroup matrices: calls of [`matrix_product`] on matrices in memory.
//!
//! A product has two instructions in the kernel, one for each element of a lane; the first one queues it. A factor is stored once in a
//! block. Sums that are an earlier product's result are accumulated in place. Queued products are called one after the other, before
//! another instruction uses a result and at the end of the block: between calls, all vectors would have to be spilled.

use std::collections::HashMap;

use elinvar_ir::{Call, Op, Operand, Type, ValueId};

use super::{Emit, Forms};
use crate::support::builder::{call as call_of, i64_const};
use crate::vector::matrix_product;

/// Maximum number of matrices in memory; each has 256 bytes of the stack.
const MOST: usize = 128;

/// Matrices of the current block.
#[derive(Default)]
pub(super) struct Matrices {
    /// Number of slots in use.
    used: usize,
    /// Slots of matrices, by the lanes' elements.
    stored: HashMap<[Operand; 2], Operand>,
    products: Vec<Product>,
    /// Index of each product, by its operands.
    by_operands: HashMap<Vec<Operand>, usize>,
    /// Number of products that were called.
    called: usize,
}

struct Product {
    sums: Operand,
    left: Operand,
    right: Operand,
    /// Whether `sums` is reused, or in [`Matrices::stored`].
    is_known: bool,
    /// The kernel's values of the result's elements.
    results: [Option<ValueId>; 2],
    /// The elements, after the call.
    vectors: Option<[Operand; 2]>,
}

impl Emit<'_, '_> {
    /// One element of each lane of an 8x8 multiply-add.
    pub(super) fn multiply_accumulate(&mut self, call: &Call, result: ValueId) {
        let element = usize::from(Self::constant_argument(call, 6) == Some(1));
        let operands: Vec<Operand> = call.args[..6].iter().map(|arg| arg.op.clone()).collect();
        let index = match self.matrices.by_operands.get(&operands) {
            Some(index) => *index,
            None => self.queue_product(call, operands),
        };
        let product = &mut self.matrices.products[index];
        if let Some(vectors) = &product.vectors {
            let vector = vectors[element].clone();
            return self.define(result, Forms { scalars: Vec::new(), vectors: vec![vector] });
        }
        if product.results[element].is_some() {
            // The same operation again.
            self.call_products();
            return self.multiply_accumulate(call, result);
        }
        product.results[element] = Some(result);
        if let ([Some(first), Some(second)], false) = (product.results, product.is_known) {
            product.is_known = true;
            let sums = product.sums.clone();
            self.matrices.stored.insert([first.into(), second.into()], sums);
        }
    }

    fn queue_product(&mut self, call: &Call, operands: Vec<Operand>) -> usize {
        if self.matrices.used + 3 > MOST {
            self.call_products();
            self.matrices.used = 0;
            self.matrices.stored.clear();
            self.matrices.products.iter_mut().for_each(|product| product.is_known = true);
        }
        let left = self.stored(call, 0);
        let right = self.stored(call, 2);
        let sums = [call.args[4].op.clone(), call.args[5].op.clone()];
        let sums = match self.matrices.stored.remove(&sums) {
            Some(slot) => slot,
            None => self.store_matrix(call, 4),
        };
        let matrices = &mut self.matrices;
        matrices.by_operands.insert(operands, matrices.products.len());
        let product = Product { sums, left, right, is_known: false, results: [None; 2], vectors: None };
        matrices.products.push(product);
        matrices.products.len() - 1
    }

    /// Calls the queued products if the instruction uses one of their results.
    pub(super) fn call_products_for(&mut self, op: &Op) {
        if op.operands().into_iter().any(|operand| self.is_queued(operand)) {
            self.call_products();
        }
    }

    /// Whether an operand is an element of a queued product's result.
    fn is_queued(&self, operand: &Operand) -> bool {
        let queued = &self.matrices.products[self.matrices.called..];
        operand.value().is_some_and(|v| queued.iter().any(|product| product.results.contains(&Some(v))))
    }

    /// Calls the queued products.
    ///
    /// Results are loaded after the last call, unless another product overwrites them: soon after a call, its stores are not yet in the
    /// cache, and the wider loads would wait for them.
    pub fn call_products(&mut self) {
        let first = std::mem::replace(&mut self.matrices.called, self.matrices.products.len());
        let mut last = Vec::new();
        for index in first..self.matrices.products.len() {
            let Product { sums, left, right, .. } = &self.matrices.products[index];
            let args = [sums, left, right].map(|matrix| (Type::PTR, matrix.clone()));
            let is_overwritten = self.matrices.products[index + 1..].iter().any(|later| later.sums == *sums);
            self.b.effect(call_of(Type::Void, matrix_product::NAME, &args));
            match is_overwritten {
                true => self.load_result(index),
                false => last.push(index),
            }
        }
        last.into_iter().for_each(|index| self.load_result(index));
    }

    fn load_result(&mut self, index: usize) {
        let Product { sums, results, .. } = &self.matrices.products[index];
        let (sums, results) = (sums.clone(), *results);
        let wide = self.wide(&Type::Float);
        let vectors: [Operand; 2] = [0, 1].map(|element| {
            let at = self.element_at(&sums, element);
            self.b.load(wide.clone(), at, None).into()
        });
        for (result, vector) in results.into_iter().zip(&vectors) {
            if let Some(result) = result {
                self.define(result, Forms { scalars: Vec::new(), vectors: vec![vector.clone()] });
            }
        }
        self.matrices.products[index].vectors = Some(vectors);
    }

    /// The slot of the matrix whose elements are the arguments at `first` and behind.
    fn stored(&mut self, call: &Call, first: usize) -> Operand {
        let elements = [call.args[first].op.clone(), call.args[first + 1].op.clone()];
        if let Some(slot) = self.matrices.stored.get(&elements) {
            return slot.clone();
        }
        let slot = self.store_matrix(call, first);
        self.matrices.stored.insert(elements, slot.clone());
        slot
    }

    fn store_matrix(&mut self, call: &Call, first: usize) -> Operand {
        let elements = [first, first + 1];
        if elements.iter().any(|index| self.is_queued(&call.args[*index].op)) {
            self.call_products();
        }
        if self.matrices.used == self.slots.matrices.len() {
            let slot = self.slot(matrix_product::memory());
            self.slots.matrices.push(slot);
        }
        let slot = self.slots.matrices[self.matrices.used].clone();
        self.matrices.used += 1;
        let wide = self.wide(&Type::Float);
        for (element, index) in elements.into_iter().enumerate() {
            let vector = self.shared(call, index);
            let at = self.element_at(&slot, element);
            self.b.store(wide.clone(), vector, at);
        }
        slot
    }

    fn element_at(&mut self, slot: &Operand, element: usize) -> Operand {
        if element == 0 {
            return slot.clone();
        }
        let size = self.wide(&Type::Float).size_align(self.source.module).0;
        self.b.gep(Type::I8, slot.clone(), i64_const(size)).into()
    }
}
