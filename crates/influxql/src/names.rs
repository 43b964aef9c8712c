//! Names the columns of a result.

use std::collections::HashMap;

use super::ast::{Expr, Literal, SelectColumn};

impl SelectColumn {
    /// The alias, else the function, else the field; for arithmetic their names joined, as in `mean_max`. Empty if
    /// there are none.
    #[must_use]
    pub fn name(&self) -> String {
        self.alias.clone().unwrap_or_else(|| name_of(&self.expr))
    }
}

fn name_of(expr: &Expr) -> String {
    match expr {
        Expr::Call { name, .. } | Expr::Reference { name, .. } => name.clone(),
        Expr::Distinct(_) => "distinct".to_owned(),
        Expr::Paren(inner) => name_of(inner),
        Expr::Binary { .. } => {
            let mut names = Vec::new();
            collect(expr, &mut names);
            names.join("_")
        }
        Expr::Literal(_) | Expr::Wildcard(_) => String::new(),
    }
}

/// Collects the functions and fields of an expression from left to right, without the arguments of calls.
fn collect<'e>(expr: &'e Expr, names: &mut Vec<&'e str>) {
    match expr {
        Expr::Call { name, .. } | Expr::Reference { name, .. } => names.push(name),
        Expr::Binary { left, right, .. } => {
            collect(left, names);
            collect(right, names);
        }
        Expr::Paren(inner) => collect(inner, names),
        _ => {}
    }
}

/// The names of all columns except time. Wildcards must have been expanded and `time` removed. `top(f, tag, n)` and
/// `bottom` are followed by a column per tag. A duplicate name gets `_1`, `_2` and so on; aliases are assigned first.
#[must_use]
pub fn column_names(columns: &[SelectColumn]) -> Vec<String> {
    let mut wanted: Vec<(bool, String)> = Vec::with_capacity(columns.len());
    for column in columns {
        wanted.push((column.alias.is_some(), column.name()));
        if let Expr::Call { name, args } = &column.expr
            && matches!(name.as_str(), "top" | "bottom")
            && let [_, tags @ .., Expr::Literal(Literal::Integer(_))] = args.as_slice()
        {
            wanted.extend(tags.iter().map(|tag| (false, name_of(tag))));
        }
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (_, alias) in wanted.iter().filter(|(is_alias, _)| *is_alias) {
        seen.insert(alias.clone(), 1);
    }
    wanted.into_iter().map(|(is_alias, name)| if is_alias { name } else { resolve(name, &mut seen) }).collect()
}

/// `name`, or the first of `name_1`, `name_2`, … that is unused.
fn resolve(name: String, seen: &mut HashMap<String, usize>) -> String {
    let Some(&count) = seen.get(&name) else {
        seen.insert(name.clone(), 1);
        return name;
    };
    let mut count = count;
    let mut free = format!("{name}_{count}");
    while seen.contains_key(&free) {
        count += 1;
        free = format!("{name}_{count}");
    }
    seen.insert(name, count + 1);
    seen.insert(free.clone(), 1);
    free
}
