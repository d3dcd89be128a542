// What the page does besides being swapped: tells whether it is live, shows times in the viewer's zone, and holds
// updates back while text is selected.
(function () {
  "use strict";

  // Three missed signs of life (the server sends one every 10 s at the latest): the connection is dead, said or not.
  var SILENCE = 30000;
  var lastWord = Date.now();
  var connected = false;
  var held = new Map();

  function clock(date) {
    return date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  }

  function moment(date) {
    var time = date.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
    if (date.toDateString() === new Date().toDateString()) return time;
    var sameYear = date.getFullYear() === new Date().getFullYear();
    var day = { day: "numeric", month: "short", year: sameYear ? undefined : "numeric" };
    return date.toLocaleDateString(undefined, day) + ", " + time;
  }

  function day(date) {
    if (date.toDateString() === new Date().toDateString()) return moment(date);
    return date.toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
  }

  // Figures come as 1,234.5: where the viewer's language writes them otherwise, so does the page. Each text once: what
  // was 1.234 by now must not be read as a decimal.
  var FIGURE = /\d{1,3}(,\d{3})+(\.\d+)?|\d+\.\d+/g;
  var marks = {};
  new Intl.NumberFormat(undefined, { useGrouping: true }).formatToParts(12345.6).forEach(function (part) { marks[part.type] = part.value; });
  var written = new WeakSet();

  function figures(root) {
    if (marks.group === "," && marks.decimal === ".") return;
    root.querySelectorAll("td.n, .totals dd, .figure, .plot span, .more, .paging").forEach(function (element) {
      var texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
      for (var text = texts.nextNode(); text; text = texts.nextNode()) {
        if (written.has(text) || text.parentElement.closest("code, time")) continue;
        text.data = text.data.replace(FIGURE, function (figure) {
          return figure.replace(/[,.]/g, function (mark) { return mark === "," ? marks.group || "" : marks.decimal; });
        });
        written.add(text);
      }
    });
  }

  function localise(root) {
    figures(root);
    root.querySelectorAll("time[datetime]").forEach(function (element) {
      var date = new Date(element.dateTime);
      if (isNaN(date)) return;
      var today = date.toDateString() === new Date().toDateString();
      var show = element.dataset.show;
      element.textContent = show === "day" ? day(date) : show === "clock" && today ? clock(date) : moment(date);
      element.title = element.dateTime;
    });
  }

  function tell() {
    var pulse = document.getElementById("pulse");
    if (!pulse) return;
    var live = connected && Date.now() - lastWord < SILENCE;
    var text = live ? "live" : "not live since " + clock(new Date(lastWord));
    if (pulse.textContent !== text) pulse.textContent = text;
    pulse.classList.toggle("wrong", !live);
    document.body.classList.toggle("frozen", !live);
  }

  function heard() {
    lastWord = Date.now();
    connected = true;
    tell();
  }

  function selecting(element) {
    var selection = window.getSelection();
    return selection && !selection.isCollapsed && selection.rangeCount > 0 && selection.containsNode(element, true);
  }

  // Somebody selects text of it, or is about to click something in it, which must not move away.
  function engaged(element) {
    return selecting(element) || element.querySelector("a:hover, button:hover") !== null;
  }

  document.addEventListener("htmx:sseOpen", function (event) {
    event.detail.source.addEventListener("alive", heard);
    heard();
  });
  document.addEventListener("htmx:sseError", function () {
    connected = false;
    tell();
  });
  document.addEventListener("htmx:sseBeforeMessage", function (event) {
    heard();
    if (engaged(event.target)) {
      held.set(event.target, event.detail.data);
      event.preventDefault();
    } else {
      held.delete(event.target);
    }
  });
  function release() {
    held.forEach(function (html, element) {
      if (engaged(element)) return;
      held.delete(element);
      htmx.swap(element, html, { swapStyle: "innerHTML" });
      localise(element);
    });
  }
  document.addEventListener("selectionchange", release);
  document.addEventListener("mouseout", function () { window.setTimeout(release); });
  document.addEventListener("htmx:sseMessage", function (event) {
    localise(event.target);
  });

  // Rows may be ticked one by one without this; with it, all of a page at once, and their number is told.
  function ticking() {
    var all = document.getElementById("tick-all");
    var told = document.getElementById("ticked-count");
    if (!all || !told) return;
    var boxes = Array.from(document.querySelectorAll("input[name=job]"));
    function count() {
      var ticked = boxes.filter(function (box) { return box.checked; }).length;
      told.textContent = ticked ? "With the " + ticked.toLocaleString() + " ticked:" : "With those ticked:";
      all.checked = ticked === boxes.length;
      all.indeterminate = ticked > 0 && ticked < boxes.length;
    }
    all.hidden = false;
    all.addEventListener("change", function () {
      boxes.forEach(function (box) { box.checked = all.checked; });
      count();
    });
    boxes.forEach(function (box) { box.addEventListener("change", count); });
    count();
  }
  ticking();

  // A part that says where it comes from is fetched anew every few seconds, and left alone while somebody is at it.
  var REFRESH = 5000;

  // A pointer that merely rests somewhere on a page must not freeze it: only over what could be clicked does it hold.
  function occupied(element) {
    var under = element.querySelector("a:hover, button:hover, tr:hover") !== null;
    return under || selecting(element) || element.contains(document.activeElement);
  }

  function refresh(element) {
    // One at a time: a late answer must not take the place of a later one.
    if (!element.dataset.refresh || element.waits || document.hidden || occupied(element)) return;
    element.waits = true;
    fetch(element.dataset.refresh, { headers: { Accept: "text/html" } }).then(function (answer) {
      return answer.ok ? answer.text() : "";
    }).then(function (text) {
      if (!text || occupied(element)) return;
      var fresh = new DOMParser().parseFromString(text, "text/html");
      var same = fresh.getElementById(element.id);
      if (same && !same.dataset.refresh) element.dataset.refresh = ""; // it has ended: nothing more will come
      [element.id, "health"].forEach(function (id) {
        var old = document.getElementById(id), found = fresh.getElementById(id);
        if (!old || !found) return;
        old.replaceChildren.apply(old, Array.from(found.childNodes));
        localise(old);
      });
    }).catch(function () {}).then(function () { element.waits = false; });
  }

  document.querySelectorAll("[data-refresh]").forEach(function (element) {
    window.setInterval(refresh, Number(element.dataset.every) || REFRESH, element);
  });
  localise(document);
  window.setInterval(tell, 1000);
})();
