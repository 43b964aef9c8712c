//! The names of the columns of a result.

use std::collections::HashMap;

use super::ast::{Expr, Literal, SelectColumn};

impl SelectColumn {
    /// The column's name: the alias, or else the function, or else the field. Arithmetic joins the names, as in
    /// `mean_max`. Empty for a constant.
    #[must_use]
    pub fn name(&self) -> String {
        self.alias.clone().unwrap_or_else(|| expr_name(&self.expr))
    }
}

fn expr_name(expr: &Expr) -> String {
    match expr {
        Expr::Call { name, .. } | Expr::Reference { name, .. } => name.clone(),
        Expr::Distinct(_) => "distinct".to_owned(),
        Expr::Paren(inner) => expr_name(inner),
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

/// A column name before duplicates are resolved.
struct WantedName {
    name: String,
    is_alias: bool,
}

/// The names of all columns except time. Wildcards must be expanded and `time` removed before. `top(f, tag, n)` and
/// `bottom` have an additional column for each tag. Duplicate names get `_1`, `_2` and so on; aliases are assigned
/// first.
#[must_use]
pub fn column_names(columns: &[SelectColumn]) -> Vec<String> {
    let mut wanted: Vec<WantedName> = Vec::with_capacity(columns.len());
    for column in columns {
        wanted.push(WantedName { name: column.name(), is_alias: column.alias.is_some() });
        if let Expr::Call { name, args } = &column.expr
            && matches!(name.as_str(), "top" | "bottom")
            && let [_, tags @ .., Expr::Literal(Literal::Integer(_))] = args.as_slice()
        {
            wanted.extend(tags.iter().map(|tag| WantedName { name: expr_name(tag), is_alias: false }));
        }
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    for alias in wanted.iter().filter(|wanted| wanted.is_alias) {
        seen.insert(alias.name.clone(), 1);
    }
    let resolved = |wanted: WantedName| if wanted.is_alias { wanted.name } else { resolve(wanted.name, &mut seen) };
    wanted.into_iter().map(resolved).collect()
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
