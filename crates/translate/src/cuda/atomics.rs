//! Atomic functions.

use super::ast::Node;
use super::render::Renderer;
use super::types::{Scalar, Space, Ty};

/// A function of 64 bits. Metal has minimum and maximum of `ulong` in device memory, without a result. Where the result is not used, a sum is
/// one of two words with its carry, and bitwise functions are those of the words.
fn wide(
    to: &mut Renderer<'_, '_>,
    node: &Node,
    name: &str,
    operation: &str,
    scalar: Scalar,
    space: Space,
    args: &[&Node],
) -> String {
    let is_unused = to.is_discarded(node);
    let [pointer, value] = args else {
        return to.no(
            node,
            &format!("`{name}` of 64 bits: Metal has none; compare and exchange words of 32 bits"),
        );
    };
    match operation {
        "Add" | "And" | "Or" | "Xor" if !is_unused => {
            return to.no(
                node,
                &format!("the result of `{name}` of 64 bits, which Metal cannot have; without it the function is translated, or count in 32 bits"),
            );
        }
        "Min" | "Max" if !is_unused || space != Space::Device || scalar != Scalar::ULong => {
            return to.no(
                node,
                &format!("`{name}` of 64 bits: Metal has it only of `unsigned long long` in device memory, without its result"),
            );
        }
        "Add" | "And" | "Or" | "Xor" | "Min" | "Max" => {}
        _ => {
            return to.no(
                node,
                &format!("`{name}` of 64 bits: Metal has no such atomic function; use words of 32 bits"),
            );
        }
    }
    let (pointer, value) = (to.argument(pointer), to.argument(value));
    let pointer = Renderer::enclosed(&pointer);
    if let "Min" | "Max" = operation {
        let function = operation.to_lowercase();
        to.notes.function(name, &format!("atomic_{function}_explicit (Apple GPU family 8)"));
        return format!(
            "atomic_{function}_explicit((device atomic_ulong*){pointer}, {value}, memory_order_relaxed)"
        );
    }
    to.need("atomic_words");
    let function = format!("atomic_{}_words", operation.to_lowercase());
    to.notes.function(name, &function);
    to.notes.difference(
        "atomic functions of 64 bits change two words of 32, one after the other: a thread that reads the number in the same launch may see one of them changed",
    );
    let value = if scalar == Scalar::Long { format!("ulong({value})") } else { value };
    format!("{function}(({} atomic_uint*){pointer}, {value})", space.word())
}

/// The text of a call of an atomic function. All are relaxed, as in CUDA.
pub(super) fn call(to: &mut Renderer<'_, '_>, node: &Node, name: &str, args: &[&Node]) -> Option<String> {
    let operation = name.strip_prefix("atomic")?;
    let operation = operation.trim_end_matches("_block").trim_end_matches("_system");
    let pointer = *args.first()?;
    let space = to.space_behind(pointer);
    let Some(Ty::Named { name: of, .. }) = to.element_of(pointer) else {
        return Some(to.no(node, &format!("`{name}` of this type has no counterpart in Metal")));
    };
    let Some(scalar) = Scalar::named(&of) else {
        return Some(to.no(node, &format!("`{name}` of `{of}` has no counterpart in Metal")));
    };
    if scalar == Scalar::Double {
        return Some(to.no(node, "`double` does not exist in Metal"));
    }
    if !matches!(space, Space::Device | Space::Threadgroup) {
        return Some(to.no(node, &format!("`{name}` of {} memory", space.word())));
    }
    if matches!(scalar, Scalar::Long | Scalar::ULong) {
        return Some(wide(to, node, name, operation, scalar, space, args));
    }
    let texts: Vec<String> = args.iter().map(|arg| to.argument(arg)).collect();
    let word = space.word();
    let address = |ty: &str| format!("({word} {ty}*){}", Renderer::enclosed(&texts[0]));
    let value = texts.get(1).cloned().unwrap_or_default();
    to.notes.function(name, "relaxed atomic function");
    let fetch = |function: &str| {
        let ty = if scalar == Scalar::Int { "atomic_int" } else { "atomic_uint" };
        format!("atomic_fetch_{function}_explicit({}, {value}, memory_order_relaxed)", address(ty))
    };
    let is_word = matches!(scalar, Scalar::Int | Scalar::UInt);
    Some(match operation {
        "Add" | "Sub" | "Min" | "Max" | "And" | "Or" | "Xor" if is_word => fetch(&operation.to_lowercase()),
        "Exch" if is_word => {
            let ty = if scalar == Scalar::Int { "atomic_int" } else { "atomic_uint" };
            format!("atomic_exchange_explicit({}, {value}, memory_order_relaxed)", address(ty))
        }
        "Exch" if scalar == Scalar::Float => {
            format!(
                "as_type<float>(atomic_exchange_explicit({}, as_type<uint>({value}), memory_order_relaxed))",
                address("atomic_uint")
            )
        }
        "CAS" if is_word => {
            to.need("atomic_cas");
            format!(
                "atomic_cas({}, {value}, {})",
                address(if scalar == Scalar::Int { "int" } else { "uint" }),
                texts.get(2)?
            )
        }
        "CAS" if matches!(scalar, Scalar::UShort) => {
            to.need("atomic_cas_16");
            format!("atomic_cas_16({}, {value}, {})", address("ushort"), texts.get(2)?)
        }
        "Add" | "Sub" if scalar == Scalar::Float => {
            let value = if operation == "Sub" { format!("-{}", Renderer::enclosed(&value)) } else { value };
            match space {
                Space::Device => format!(
                    "atomic_fetch_add_explicit({}, {value}, memory_order_relaxed)",
                    address("atomic_float")
                ),
                _ => {
                    to.need("atomic_add_float");
                    format!("atomic_add_float({}, {value})", address("float"))
                }
            }
        }
        "Add" if matches!(scalar, Scalar::Half | Scalar::BFloat) => {
            to.need("atomic_cas_16");
            format!("atomic_add_16({}, {value})", address(scalar.word()))
        }
        _ => to.no(node, &format!("`{name}` of `{of}` has no counterpart in Metal")),
    })
}
