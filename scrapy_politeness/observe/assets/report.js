"use strict";
// Sorts the table by the column whose heading is selected, and by that column the
// other way round when it is selected again.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.querySelectorAll("thead th")];
  const body = table.tBodies[0];

  const keyOf = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.value;
    return value === undefined ? cell.textContent : Number(value);
  };
  const compare = (a, b) =>
    typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });

  const sortBy = (column) => {
    const head = heads[column];
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : "down" in head.dataset;
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].sort(
      (a, b) => compare(keyOf(a, column), keyOf(b, column)) * (down ? -1 : 1)
    );
    body.append(...rows);
  };

  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => sortBy(column));
  });
}
