//! Products of tensors in device memory on GPUs with `wgmma`: the intrinsics become calls of functions that are added to the IR as text,
//! since the IR's model has no inline assembly.
//!
//! The result is in the layout of the instruction: lane l holds row l / 4 and two columns from l % 4 * 2 on. A shuffle of each element turns
//! it to that of simdgroup matrices, in which lane i holds row i / 16 * 4 + i / 2 % 4 and two columns from i / 8 % 2 * 4 + i % 2 * 2 on.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use elinvar_ir::{CallArg, Callee, Const, Global, Module, Op, Operand, Type};

use super::wgmma::Product;
use crate::intrinsic::Intrinsic;
use crate::support::ir::callee_name;
use crate::{ENTRY, Error, THREADGROUP_SECTION, tensor_products};

/// Functions of a module for products.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Functions {
    kinds: BTreeSet<u32>,
}

/// The tiles in shared memory.
const TILES: &str = "elinvar_tensor_tiles";
pub(crate) const HAS: &str = "elinvar_tensor_has";
const PRODUCT: &str = "elinvar_tensor_product_";

/// Whether a function may be one that is defined behind a module.
pub(crate) fn is_function(name: &str) -> bool {
    name == HAS || name.starts_with(PRODUCT)
}

/// Replaces the intrinsics by calls, and adds their memory. Where `wgmma` does not have a kind, or the module has other functions that ask
/// for products, the device has none.
pub(super) fn lower(module: &mut Module) -> Result<Functions, Error> {
    let mut functions = Functions::default();
    let index = module.functions.iter().position(|f| f.name == ENTRY && !f.is_declaration());
    let index = index.ok_or_else(|| Error::Malformed(format!("there is no function `{ENTRY}`")))?;
    let mut bytes = 0;
    for inst in module.functions[index].blocks.iter_mut().flat_map(|block| &mut block.insts) {
        let Op::Call(call) = &mut inst.op else { continue };
        let intrinsic = callee_name(call).and_then(Intrinsic::parse);
        let is_question = intrinsic == Some(Intrinsic::HasTensorProduct);
        if !is_question && intrinsic != Some(Intrinsic::TensorProduct) {
            continue;
        }
        let kind = call.args.last().and_then(|arg| match &arg.op {
            Operand::Const(kind) => u32::try_from(kind.as_unsigned(32)?).ok(),
            Operand::Value(_) => None,
        });
        let Some((kind, product)) = kind.and_then(|kind| Some((kind, Product::of(kind)?))) else { continue };
        call.args.pop();
        if is_question {
            call.callee = Callee::Function(HAS.into());
        } else {
            functions.kinds.insert(kind);
            bytes = bytes.max(product.shared_bytes());
            call.callee = Callee::Function(format!("{PRODUCT}{kind}"));
            let tiles = Operand::from(Const::Global(TILES.into()));
            call.args.push(CallArg { ty: Type::PTR, attrs: String::new(), op: tiles });
        }
    }
    tensor_products::decline(module);
    if functions.kinds.is_empty() {
        return Ok(functions);
    }
    module.globals.push(Global {
        name: TILES.into(),
        linkage: "internal".into(),
        constant: false,
        ty: Type::array(u64::from(bytes), Type::I8),
        init: Some(Const::Undef),
        section: Some(THREADGROUP_SECTION.into()),
        align: Some(16),
        suffix: String::new(),
        metadata: Vec::new(),
    });
    let text = functions.declarations();
    let declared = Module::parse(&text).map_err(|error| Error::Malformed(format!("{error} in\n{text}")))?;
    module.functions.extend(declared.functions);
    Ok(functions)
}

impl Functions {
    /// Declarations of the functions, as LLVM IR.
    fn declarations(&self) -> String {
        if self.kinds.is_empty() {
            return String::new();
        }
        let mut text = format!("declare i1 @{HAS}(ptr, i64, ptr, i64)\n");
        for kind in &self.kinds {
            let _ =
                writeln!(text, "declare void @{PRODUCT}{kind}(ptr, ptr, i64, ptr, i64, i32, i32, i32, ptr)");
        }
        text
    }

    /// Whether a function is one of these.
    pub fn contain(&self, name: &str) -> bool {
        !self.kinds.is_empty()
            && (name == HAS
                || name
                    .strip_prefix(PRODUCT)
                    .is_some_and(|kind| kind.parse().is_ok_and(|k| self.kinds.contains(&k))))
    }

    /// The module's text with the definitions in place of the declarations.
    pub fn define(&self, ir: &str) -> String {
        if self.kinds.is_empty() {
            return ir.to_owned();
        }
        let is_declared = |line: &str| {
            line.starts_with("declare")
                && (line.contains(&format!("@{HAS}(")) || line.contains(&format!("@{PRODUCT}")))
        };
        let mut text: String =
            ir.lines().filter(|line| !is_declared(line)).flat_map(|line| [line, "\n"]).collect();
        text += QUESTION;
        for declaration in QUESTION_CALLS.iter().chain(PRODUCT_CALLS) {
            let name = declaration.split(['@', '(']).nth(1).unwrap_or_default();
            if !ir.contains(&format!("@{name}("))
                || !ir.lines().any(|l| l.starts_with("declare") && l.contains(&format!("@{name}(")))
            {
                let _ = writeln!(text, "{declaration}");
            }
        }
        for kind in &self.kinds {
            if let Some(product) = Product::of(*kind) {
                text += &definition(*kind, product);
            }
        }
        text
    }
}

/// Factors in device memory with rows of whole 16-byte words.
const QUESTION: &str = "
define internal i1 @elinvar_tensor_has(ptr %left, i64 %ls, ptr %right, i64 %rs) alwaysinline nounwind {
  %lg = call i1 @llvm.nvvm.isspacep.global(ptr %left)
  %rg = call i1 @llvm.nvvm.isspacep.global(ptr %right)
  %global = and i1 %lg, %rg
  %la = ptrtoint ptr %left to i64
  %ra = ptrtoint ptr %right to i64
  %o0 = or i64 %la, %ra
  %o1 = or i64 %ls, %rs
  %o2 = or i64 %o0, %o1
  %rest = and i64 %o2, 15
  %aligned = icmp eq i64 %rest, 0
  %has = and i1 %global, %aligned
  ret i1 %has
}
";
const QUESTION_CALLS: &[&str] = &["declare i1 @llvm.nvvm.isspacep.global(ptr)"];
const PRODUCT_CALLS: &[&str] = &[
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.y()",
    "declare i32 @llvm.nvvm.read.ptx.sreg.tid.z()",
    "declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()",
    "declare i32 @llvm.nvvm.read.ptx.sreg.ntid.y()",
    "declare i32 @llvm.nvvm.read.ptx.sreg.laneid()",
    "declare float @llvm.nvvm.shfl.sync.idx.f32(i32, float, i32, i32)",
];

fn definition(kind: u32, product: Product) -> String {
    let count = product.elements();
    let mut text = format!(
        "
define internal void @{PRODUCT}{kind}(ptr %elements, ptr %left, i64 %ls, ptr %right, i64 %rs, i32 %rows, i32 %columns, i32 %depth, ptr %tiles) alwaysinline convergent nounwind {{
  %tx = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %ty = call i32 @llvm.nvvm.read.ptx.sreg.tid.y()
  %tz = call i32 @llvm.nvvm.read.ptx.sreg.tid.z()
  %nx = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %ny = call i32 @llvm.nvvm.read.ptx.sreg.ntid.y()
  %t0 = mul i32 %tz, %ny
  %t1 = add i32 %t0, %ty
  %t2 = mul i32 %t1, %nx
  %thread = add i32 %t2, %tx
  %s0 = addrspacecast ptr %tiles to ptr addrspace(3)
  %s1 = ptrtoint ptr addrspace(3) %s0 to i32
  %s2 = add i32 %s1, 1023
  %shared = and i32 %s2, -1024
  %lane = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  %l4 = and i32 %lane, 16
  %l3 = and i32 %lane, 8
  %l2 = and i32 %lane, 4
  %l1 = and i32 %lane, 2
  %l0 = and i32 %lane, 1
"
    );
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    // Lane i holds row (i4 i2 i1) and pair (i3 i0) in the layout of simdgroup matrices; lane l row (l4 l3 l2) and pair (l1 l0) in that of
    // the instruction.
    let lane = |line: &mut dyn FnMut(String), to: &str, moves: [(&str, i32); 5]| {
        for (at, (bit, by)) in moves.iter().enumerate() {
            let op = if *by < 0 { "lshr" } else { "shl" };
            line(format!("%{to}.b{at} = {op} i32 %{bit}, {}", by.abs()));
        }
        line(format!("%{to}.0 = or i32 %{to}.b0, %{to}.b1"));
        line(format!("%{to}.1 = or i32 %{to}.b2, %{to}.b3"));
        line(format!("%{to}.2 = or i32 %{to}.0, %{to}.1"));
        line(format!("%{to} = or i32 %{to}.2, %{to}.b4"));
    };
    lane(&mut line, "from", [("l4", 0), ("l2", 1), ("l1", 1), ("l3", -2), ("l0", 0)]);
    if product.accumulates {
        lane(&mut line, "back", [("l4", 0), ("l3", -1), ("l2", -1), ("l1", 2), ("l0", 0)]);
    }
    let shuffle = |value: String, lane: &str| {
        format!("call float @llvm.nvvm.shfl.sync.idx.f32(i32 -1, float {value}, i32 %{lane}, i32 31)")
    };
    for i in 0..count {
        line(format!("%p{i} = getelementptr float, ptr %elements, i64 {i}"));
        if product.accumulates {
            line(format!("%e{i} = load float, ptr %p{i}, align 4"));
            line(format!("%c{i} = {}", shuffle(format!("%e{i}"), "back")));
        }
    }
    let result = format!("{{ {} }}", vec!["float"; count as usize].join(", "));
    let outputs = vec!["=f"; count as usize].join(",");
    let ties = (0..count).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let initial: Vec<String> = (0..count)
        .map(|i| if product.accumulates { format!("float %c{i}") } else { "float 0.000000e+00".into() })
        .collect();
    let assembly = product.text().replace('\n', "\\0A").replace('"', "\\22");
    // The operands that are no elements come first among the inputs, so that ties are last.
    line(format!(
        "%sums = call {result} asm sideeffect \"{assembly}\", \"{outputs},l,l,l,l,r,r,r,r,r,{ties},~{{memory}}\"(ptr %left, i64 %ls, ptr %right, i64 %rs, i32 %rows, i32 %columns, i32 %depth, i32 %shared, i32 %thread, {}) convergent nounwind",
        initial.join(", ")
    ));
    for i in 0..count {
        line(format!("%x{i} = extractvalue {result} %sums, {i}"));
        line(format!("%y{i} = {}", shuffle(format!("%x{i}"), "from")));
        line(format!("store float %y{i}, ptr %p{i}, align 4"));
    }
    text + "  ret void\n}\n"
}
