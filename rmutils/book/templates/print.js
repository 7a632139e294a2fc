// What happens to a page of the book before it is printed (rmutils/book/site/pdf.py).
({
    ready: async () => {
        await document.fonts.ready;
        await window.MathJax?.startup?.promise;
        for (const image of document.images) image.loading = 'eager';
        await Promise.all([...document.images].map(image => image.decode().catch(() => null)));
    },
    shorten: ([rows, folded, kept]) => {
        for (const table of document.querySelectorAll('article table:not(.rm-claims table)')) {
            const all = [...table.querySelectorAll('tbody tr')];
            if (all.length <= (table.closest('.rm-fold') ? folded : rows)) continue;
            const last = all.slice(0, kept).findLastIndex(row => row.querySelector('td')) + 1;
            all.slice(last).forEach(row => row.remove());
            const file = table.closest('.cell_output')?.querySelector('.rm-beside [download$=".csv"]');
            const more = all.slice(last).filter(row => row.querySelector('td')).length;
            const told = Object.assign(document.createElement('p'), {className: 'rm-more', textContent:
                `${more} more rows: in the HTML` + (file ? `, ${file.download}` : '')});
            table.after(told);
        }
    },
    // On the screen solutions follow their exercises, folded; on paper they come last.
    solutions: () => {
        const found = [...document.querySelectorAll('article .solution')];
        if (!found.length) return;
        const section = Object.assign(document.createElement('section'),
            {id: 'solutions', className: 'rm-solutions', innerHTML: '<h2>Solutions</h2><div></div>'});
        for (const solution of found) {
            const number = solution.previousElementSibling?.querySelector('.caption-number');
            if (number) solution.querySelector('.admonition-title').textContent = number.textContent;
            solution.classList.remove('toggle', 'toggle-hidden');
        }
        section.lastChild.append(...found);
        const next = document.querySelector('article #next');
        next ? next.before(section) : document.querySelector('article > section').append(section);
    },
    // Tables that are still too wide get smaller letters, and in the widest of them words break.
    fit: width => {
        for (const table of document.querySelectorAll('article table')) {
            const share = (table.parentElement.clientWidth || width) / table.scrollWidth;
            if (share < 0.6) table.style.overflowWrap = 'anywhere';
            if (share < 1) table.style.zoom = Math.max(share, 0.6);
        }
    },
    headings: () => [...document.querySelectorAll('article :is(h1, h2)')]
        .filter(heading => heading.checkVisibility())
        .map(heading => [Number(heading.tagName[1]), heading.closest('[id]').id,
                         [...heading.childNodes].filter(n => !n.classList?.contains('headerlink'))
                             .map(n => n.textContent).join('').trim()]),
    // Chromium tells where an element stands only if a link of the same page leads to it.
    targets: () => {
        const links = document.createElement('div');
        for (const {id} of document.querySelectorAll('article [id]')) {
            links.append(Object.assign(document.createElement('a'), {href: '#' + id}));
        }
        document.querySelector('article').append(links);
    },
})
