//! Reasons for errors that clang reports in words of C++: what of Metal is not supported.

/// A message of clang's, with the reason if the error is one of Elinvar's limits.
pub(crate) fn with_reason(message: String) -> String {
    if let Some(name) = message.strip_prefix('\'').and_then(|rest| rest.strip_suffix("' file not found")) {
        return match of_header(name) {
            Some(reason) => format!("`{name}` is not supported: {reason}"),
            None => message,
        };
    }
    let undefined = message
        .strip_prefix("function '")
        .and_then(|rest| rest.strip_suffix("' has internal linkage but is not defined"));
    match undefined {
        Some(name) => {
            format!("function `{name}` is declared, and neither the source nor its libraries define it")
        }
        None => message,
    }
}

/// Why a header of Metal's is not there.
fn of_header(name: &str) -> Option<&'static str> {
    match name.split('/').next()? {
        "metal_tensor" => Some("tensors are part of Metal 4, and Elinvar compiles Metal 3.2"),
        "MetalPerformancePrimitives" => {
            Some("Metal Performance Primitives work on tensors of Metal 4, and Elinvar compiles Metal 3.2")
        }
        "MetalPerformanceShaders" | "MetalPerformanceShadersGraph" => {
            Some("Metal Performance Shaders are functions of the host; Elinvar calls them as primitives")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        for (message, expected) in [
            ("'metal_tensor' file not found", "`metal_tensor` is not supported: tensors are part of Metal 4"),
            (
                "'MetalPerformancePrimitives/MPPTensorOpsMatMul2d.h' file not found",
                "`MetalPerformancePrimitives/MPPTensorOpsMatMul2d.h` is not supported: Metal Performance Primitives",
            ),
            ("'metal_tensors.h' file not found", "'metal_tensors.h' file not found"),
            (
                "function 'f<int>' has internal linkage but is not defined",
                "function `f<int>` is declared, and neither the source nor its libraries define it",
            ),
            ("use of undeclared identifier 'f'", "use of undeclared identifier 'f'"),
        ] {
            let found = with_reason(message.to_owned());
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
