//! Launches `<<<>>>` of the host's code as functions in Rust.

use super::ast::Node;
use super::names::Names;
use super::program::{Need, Program};
use super::types::{Scalar, Ty, vector};
use crate::opencl::text::Text;

/// A function for each launch in the source.
pub(super) fn stub(names: &Names<'_>, program: &Program<'_>, kernels: &[usize], text: &Text) -> String {
    let mut out = String::from(
        "//! Launches of the kernels, written by `elinvar translate --from cuda --host-stub`.\n\nuse elinvar::{Arg, Buffer, Completion, Grid, Library, Result, Stream, Threadgroup};\n",
    );
    let mut launches = Vec::new();
    for function in
        names.functions.iter().filter(|node| !program.is_header(node) && !node.has("CUDAGlobalAttr"))
    {
        function.walk(&mut |node| {
            if node.kind == "CUDAKernelCallExpr"
                && !launches.iter().any(|known: &&Node| known.begin == node.begin)
            {
                launches.push(node);
            }
        });
    }
    launches.sort_by_key(|node| node.begin);
    for (number, node) in launches.into_iter().enumerate() {
        let Some(id) = node.callee().and_then(|callee| callee.refers.as_ref()).map(|to| to.id) else {
            continue;
        };
        let Some(kernel) = names.definition(id) else { continue };
        let Some(instance) =
            kernels.iter().map(|index| &program.instances[*index]).find(|one| one.node.id == kernel.id)
        else {
            continue;
        };
        out.push('\n');
        out.push_str(&launch(
            names,
            program,
            text,
            node,
            instance.node,
            &instance.name,
            &instance.needs.iter().copied().collect::<Vec<_>>(),
            number,
        ));
    }
    out
}

#[expect(clippy::too_many_arguments, reason = "the parts of one launch")]
fn launch(
    names: &Names<'_>,
    program: &Program<'_>,
    text: &Text,
    node: &Node,
    kernel: &Node,
    name: &str,
    needs: &[Need],
    number: usize,
) -> String {
    let at = node.begin.unwrap_or(0);
    let place = text.location(at);
    let source = node
        .end
        .and_then(|end| text.text.get(at..end))
        .unwrap_or("")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let config = node.children.get(1).filter(|child| child.kind == "CallExpr");
    let config: Vec<&Node> = config.map_or(Vec::new(), |call| call.children.iter().skip(1).collect());
    let mut params = vec!["library: &Library".to_owned(), "stream: &Stream".into()];
    let mut size = |node: Option<&&Node>, word: &str| match node.and_then(|node| dimensions(node)) {
        Some([x, y, z]) => format!("({x}, {y}, {z})"),
        None => {
            params.push(format!("{word}: (usize, usize, usize)"));
            word.to_owned()
        }
    };
    let groups = size(config.first(), "groups");
    let group = size(config.get(1), "group");
    let mut args = Vec::new();
    for param in kernel.params() {
        let ty = Ty::parse(&param.plain).resolve(names);
        let word = format!("{}{}", param.name, if is_rust_keyword(&param.name) { "_" } else { "" });
        params.push(format!("{word}: {}", parameter(&ty)));
        args.push(argument(&ty, &word));
    }
    if needs.contains(&Need::Dynamic) {
        let bytes = config
            .get(2)
            .map(|node| node.bare())
            .filter(|node| node.kind == "IntegerLiteral")
            .map(|node| node.value.clone());
        let bytes = bytes.unwrap_or_else(|| {
            params.push("shared_bytes: usize".into());
            "shared_bytes".into()
        });
        args.push(format!("Threadgroup::bytes({bytes}).into()"));
    }
    for need in needs {
        if let Need::Global(id) = need {
            let declared = names.nodes[id];
            let mut ty = Ty::parse(&declared.plain).resolve(names);
            while let Ty::Array(of, _) = ty {
                ty = *of;
            }
            let pointer = Ty::Pointer(Box::new(ty));
            params.push(format!("{}: {}", declared.name, parameter(&pointer)));
            args.push(argument(&pointer, &declared.name));
        }
    }
    let _ = program;
    format!(
        "/// `{source}` in `{}`, line {}.\n///\n/// # Safety\n/// The kernel stays within its arguments.\n\
         #[allow(clippy::too_many_arguments, unsafe_code)]\n\
         pub unsafe fn launch_{}_{name}({}) -> Result<Completion> {{\n    \
         let grid = Grid::groups({groups}).group({group});\n    \
         let args: Vec<Arg> = vec![{}];\n    \
         // SAFETY: guaranteed by the caller.\n    \
         unsafe {{ library.kernel(\"{name}\")?.launch(stream, grid, args) }}\n}}\n",
        place.file,
        place.line,
        number + 1,
        params.join(", "),
        args.join(", "),
    )
}

/// The numbers of a `dim3`, if they are in the source.
fn dimensions(node: &Node) -> Option<[u64; 3]> {
    let mut node = node.bare();
    while matches!(
        node.kind.as_str(),
        "CXXConstructExpr" | "CXXTemporaryObjectExpr" | "CXXFunctionalCastExpr"
    ) {
        let numbers: Vec<&Node> = node.children.iter().map(Node::bare).collect();
        if numbers.iter().all(|number| number.kind == "IntegerLiteral") {
            let mut size = [1; 3];
            for (to, number) in size.iter_mut().zip(numbers) {
                *to = number.value.parse().ok()?;
            }
            return Some(size);
        }
        node = node.first()?.bare();
    }
    None
}

fn element(ty: &Ty) -> String {
    let Ty::Named { name, .. } = ty else { return "u64".into() };
    if let Some((scalar, lanes)) = vector(name) {
        let of = rust(scalar);
        return if lanes == 1 { of.into() } else { format!("[{of}; {lanes}]") };
    }
    Scalar::named(name).map_or("u8", rust).to_owned()
}

fn rust(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Bool => "bool",
        Scalar::Char => "i8",
        Scalar::UChar => "u8",
        Scalar::Short => "i16",
        Scalar::UShort => "u16",
        Scalar::Int => "i32",
        Scalar::UInt => "u32",
        Scalar::Long => "i64",
        Scalar::ULong => "u64",
        Scalar::Half => "elinvar::f16",
        Scalar::BFloat => "elinvar::bf16",
        Scalar::Float => "f32",
        Scalar::Double => "f64",
    }
}

/// The type of a launch's parameter: memory of the device, a number, or the bytes of a struct.
fn parameter(ty: &Ty) -> String {
    match ty {
        Ty::Pointer(to) => {
            let is_const = matches!(&**to, Ty::Named { is_const: true, .. });
            format!("&{}Buffer<{}>", if is_const { "" } else { "mut " }, element(to))
        }
        Ty::Named { name, .. } if Scalar::named(name).is_some() => element(ty),
        _ => "&[u8]".into(),
    }
}

fn argument(ty: &Ty, name: &str) -> String {
    match ty {
        Ty::Pointer(_) => format!("Arg::from({name})"),
        Ty::Named { name: of, .. } if Scalar::named(of).is_some() => format!("Arg::from({name})"),
        _ => format!("Arg::bytes({name})"),
    }
}

fn is_rust_keyword(name: &str) -> bool {
    matches!(
        name,
        "in" | "type"
            | "fn"
            | "let"
            | "loop"
            | "match"
            | "mod"
            | "move"
            | "mut"
            | "ref"
            | "self"
            | "use"
            | "where"
            | "impl"
            | "dyn"
            | "pub"
            | "as"
            | "box"
            | "stream"
            | "library"
            | "group"
            | "groups"
    )
}
