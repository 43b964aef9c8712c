//! `GET /api/v1/export`: readings as line protocol, which keeps the types of values. The answer is sent while it is
//! read. After each part, a comment has the cursor by which an interrupted export continues.

use axum::response::Response;

use super::api::readings::bad_cursor;
use super::cursor;
use super::errors::{ApiError, ApiResult};
use super::parameters::Parameters;
use super::render::text::Text;
use crate::bucket::Renames;
use crate::query::native::many::{ManyReadings, ManySelection};
use crate::query::native::readings::Order;
use crate::query::{Budget, ExportPermit, QueryError};
use crate::wire::line_protocol::write_line;

/// Maximum number of readings per part.
const PART_READINGS_MAX: usize = 50_000;
/// The last line of a complete answer.
const END: &str = "# end\n";

/// `GET /api/v1/export`.
pub async fn export(parameters: Parameters) -> ApiResult<Response> {
    let app = parameters.app.clone();
    let budget = parameters.budget();
    let selector = parameters.selector_or_all(&budget).await?.selector;
    let per_sensor = parameters.selection(&selector)?;
    let range = per_sensor.range.clone();
    let start = parameters.get("cursor").map(|cursor| {
        let (time, key) = cursor::parse(cursor, &range).ok_or_else(|| bad_cursor(cursor))?;
        Ok::<_, ApiError>((key, time))
    });
    let renames = app.query.settings().renames(&per_sensor.database).cloned();
    let permit = app.query.begin_export(&parameters.requester.caller)?;
    let selection = ManySelection { selector, per_sensor, order: Order::Ascending, start: start.transpose()? };
    let mut export = Export { parameters, selection, renames, is_complete: false, _permit: permit };
    // A failure of the first part still gets an error status.
    let mut body = Text::new(&budget)?;
    export.write_part(&mut body, &budget).await?;
    budget.finish();
    Ok(body.stream("text/plain; charset=utf-8", |body| export.write_rest(body)))
}

struct Export {
    parameters: Parameters,
    /// The readings that are not written yet.
    selection: ManySelection,
    /// The renames by which the first part named its sensors. Parts are in the order of these names.
    renames: Option<Renames>,
    is_complete: bool,
    _permit: ExportPermit,
}

impl Export {
    async fn write_rest(mut self, mut body: Text) -> Result<Text, QueryError> {
        while !self.is_complete {
            // Each part has the time and the memory of a request.
            let budget = self.parameters.budget();
            body.charge_to(&budget)?;
            if self.parameters.app.query.settings().renames(&self.selection.per_sensor.database)
                != self.renames.as_ref()
            {
                return Err(QueryError::Changed);
            }
            self.write_part(&mut body, &budget).await?;
            budget.finish();
        }
        Ok(body)
    }

    /// Writes the next part, and a comment that has its end.
    async fn write_part(&mut self, body: &mut Text, budget: &Budget) -> Result<(), QueryError> {
        let query = &self.parameters.app.query;
        let part = query.many_readings(budget, &self.selection, PART_READINGS_MAX).await?;
        let ManyReadings { series, next, held: _held } = part;
        for series in &series {
            for reading in &series.readings {
                let fields = reading.fields.iter().map(|(name, value)| (&**name, value));
                write_line(&mut body.out, &series.sensor.key, fields, reading.time);
                body.row().await?;
            }
        }
        match &next {
            Some((key, time)) => body.out.push_str(&format!("# next {}\n", cursor::format(*time, key))),
            None => body.out.push_str(END),
        }
        self.is_complete = next.is_none();
        self.selection.start = next;
        Ok(())
    }
}
