//! Finds variables at program scope with dynamic initialization, which MSL does not have.

use crate::ir::recursion::{field, metadata, quoted};

/// File and line of the first such variable in optimized LLVM IR text with line tables.
pub(crate) fn find(ir: &str) -> Option<(String, u32)> {
    let list = ir.lines().find(|line| line.starts_with("@llvm.global_ctors = "))?;
    let function = list.split("ptr @").nth(1)?.split([',', ' ']).next()?;
    let head = format!("@{function}(");
    let mut body =
        ir.lines().skip_while(|line| !(line.starts_with("define ") && line.contains(&head))).skip(1);
    let located = body.find(|line| line.starts_with('}') || line.contains("!dbg !"))?;
    let mut location = metadata(ir, field(located, "!dbg !")?)?;
    // Find the call site of what was inlined.
    while let Some(outer) = field(location, "inlinedAt: !").and_then(|at| metadata(ir, at)) {
        // The outermost is the function that runs all initializers, at line 0.
        if field(outer, "line: ") == Some("0") {
            break;
        }
        location = outer;
    }
    let scope = metadata(ir, field(location, "scope: !")?)?;
    let file = metadata(ir, field(scope, "file: !")?)?;
    Some((quoted(file, "filename: ")?, field(location, "line: ")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_variable() {
        let ir = "@llvm.global_ctors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @_GLOBAL__sub_I_s, ptr null }]\n\
                  define internal void @_GLOBAL__sub_I_s() #0 !dbg !1 {\n  %1 = call float @f(), !dbg !3\n  ret void, !dbg !9\n}\n\
                  !1 = distinct !DISubprogram(linkageName: \"_GLOBAL__sub_I_s\", file: !8, type: !2)\n\
                  !3 = !DILocation(line: 70, scope: !4, inlinedAt: !5)\n!4 = distinct !DISubprogram(name: \"exp2\", file: !7)\n\
                  !5 = !DILocation(line: 12, scope: !6, inlinedAt: !9)\n!6 = distinct !DISubprogram(name: \"__cxx_global_var_init\", file: !8)\n\
                  !7 = !DIFile(filename: \"math.h\", directory: \"\")\n!8 = !DIFile(filename: \"a.metal\", directory: \"\")\n\
                  !9 = !DILocation(line: 0, scope: !1)\n";
        assert_eq!(find(ir), Some(("a.metal".into(), 12)));
        assert_eq!(find("define void @f() {\n}\n"), None);
        assert_eq!(find("@llvm.global_ctors = appending global [0 x ptr] zeroinitializer\n"), None);
    }
}
